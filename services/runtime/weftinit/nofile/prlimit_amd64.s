#include "textflag.h"

// func prlimit(pid, resource int, set, get unsafe.Pointer) int
TEXT ·prlimit(SB), NOSPLIT, $0-40
	MOVQ pid+0(FP), DI
	MOVQ resource+8(FP), SI
	MOVQ set+16(FP), DX
	MOVQ get+24(FP), R10
	MOVQ $302, AX // prlimit64
	SYSCALL
	MOVQ AX, ret+32(FP)
	RET
