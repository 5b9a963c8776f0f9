package filesystem

const crashDirEnv = "WEFT_FILESYSTEM_CRASH_DIR"

func crashChild(string) int { return 1 }
