package manager_test

const childEnv = "WEFT_TEST_MANAGER_CHILD"

func child() int { return 0 }
