#include "textflag.h"

// func prlimit(pid, resource int, set, get unsafe.Pointer) int
TEXT ·prlimit(SB), NOSPLIT, $0-40
	MOVD pid+0(FP), R0
	MOVD resource+8(FP), R1
	MOVD set+16(FP), R2
	MOVD get+24(FP), R3
	MOVD $261, R8 // prlimit64
	SVC
	MOVD R0, ret+32(FP)
	RET
