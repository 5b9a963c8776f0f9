module github.com/weftmesh/weft/tools

go 1.26

require (
	github.com/weftmesh/weft/pkg v0.0.0
	github.com/weftmesh/weft/schemas v0.0.0
)

replace (
	github.com/weftmesh/weft/pkg => ../pkg
	github.com/weftmesh/weft/schemas => ../schemas
)
