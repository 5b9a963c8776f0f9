module github.com/weftmesh/weft/schemas

go 1.26
