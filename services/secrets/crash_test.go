package secrets_test

const childEnv = "WEFT_SECRETS_TEST_CHILD"

func child() {}
