package runtime

const childEnv = "WEFT_RUNTIME_TEST_CHILD"

func child() int { return 0 }
