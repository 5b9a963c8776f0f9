package weftd

import "github.com/weftmesh/weft/pkg/app/lifecycle"

func (d *daemon) secretsPart() lifecycle.Part { return lifecycle.Part{Name: "secrets"} }
func (d *daemon) runtimePart() lifecycle.Part { return lifecycle.Part{Name: "runtime"} }
