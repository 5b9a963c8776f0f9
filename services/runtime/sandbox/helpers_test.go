package sandbox

import "github.com/stretchr/testify/assert"

type assertT = assert.CollectT
