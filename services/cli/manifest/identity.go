package manifest

import (
	"github.com/weftmesh/weft/schemas/workspace"
)

// payload is the uid and gid of what runs in a sandbox, as it sees them itself.
const payload = 1000

// identity is what the two securityContexts say together; the container's counts over the pod's.
type identity struct {
	r        *reader
	user     *int64
	nonRoot  bool
	grows    bool // allowPrivilegeEscalation: true
	readOnly *bool
}

func newIdentity(r *reader) *identity { return &identity{r: r} }

// read takes a securityContext, of the pod or of the container.
func (d *identity) read(s object, pod bool) {
	if u, given := s.number("runAsUser"); given {
		d.user = &u
		if u != 0 && u != payload {
			d.r.refuse(s.at("runAsUser"), "a sandbox's user is %d, or 0 for root inside", payload)
		}
	}
	if is, given := s.flag("runAsNonRoot"); given {
		d.nonRoot = is
	}
	if g, given := s.number("runAsGroup"); given && g != 0 && g != payload {
		d.r.refuse(s.at("runAsGroup"), "a sandbox's group is %d, or 0 for root inside", payload)
	}
	seccomp := s.child("seccompProfile")
	switch p := seccomp.text("type"); p {
	case "", "RuntimeDefault":
	default:
		d.r.refuse(seccomp.at("type"), "%q can't be had: every sandbox has Weft's filter of system calls; a Template of Weft chooses one with seccomp", clip(p))
	}
	seccomp.done()
	if app := s.child("appArmorProfile"); app.m != nil {
		if p := app.text("type"); p != "RuntimeDefault" {
			d.r.refuse(app.at("type"), "%q can't be had", clip(p))
		}
		app.done()
	}
	s.forbid("the labels of the node's security module are not a sandbox's to set", "seLinuxOptions", "windowsOptions")
	if pod {
		if _, given := s.number("fsGroup"); given {
			d.r.note(s.at("fsGroup"), "a sandbox's files are its user's already")
		}
		s.ignore("a sandbox's files are its user's already", "fsGroupChangePolicy")
		s.forbid("a sandbox's user is in one group", "supplementalGroups", "supplementalGroupsPolicy")
		s.forbid("kernel settings are the node's", "sysctls")
		s.done()
		return
	}
	d.container(s)
	s.done()
}

// container takes what only a container's securityContext has.
func (d *identity) container(s object) {
	s.forbid("a sandbox is never privileged", "privileged")
	if is, given := s.flag("allowPrivilegeEscalation"); given {
		d.grows = is
	}
	if is, given := s.flag("readOnlyRootFilesystem"); given {
		d.readOnly = &is
	}
	caps := s.child("capabilities")
	caps.take("drop") // the payload has none
	caps.forbid("capabilities take a Template of Weft with level: custom, rootInside and custom.capabilities", "add")
	caps.done()
	if p := s.text("procMount"); p != "" && p != "Default" {
		d.r.refuse(s.at("procMount"), "%q can't be had: /proc is always masked", clip(p))
	}
}

// settle says what the two mean for a template.
func (d *identity) settle(path string, t *workspace.Template) {
	root := d.user != nil && *d.user == 0
	if root && d.nonRoot {
		d.r.refuse(path+".runAsNonRoot", "it contradicts runAsUser: 0")
	}
	t.RootInside = root
	if d.grows && !root {
		d.r.refuse(path+".allowPrivilegeEscalation", "a program gains rights only with root inside: say runAsUser: 0 as well")
	}
	t.WritableRoot = d.readOnly != nil && !*d.readOnly
	if d.readOnly == nil {
		d.r.note(path+".readOnlyRootFilesystem", "it is not said, so the root stays read-only; say false for one that can be written")
	}
}
