package manifest

import (
	"time"

	"github.com/weftmesh/weft/schemas"
)

// maxLife is how long a sandbox can live.
const maxLife = 24 * time.Hour

// sandboxClaim reads a SandboxClaim: v1alpha1 names a template, v1beta1 a warm pool.
func sandboxClaim(r *reader, root object) Object {
	spec := root.child("spec")
	c := &SandboxClaim{Template: reference(r, spec, "sandboxTemplateRef", false), Pool: reference(r, spec, "warmPoolRef", false)}
	if c.Template == "" && c.Pool == "" {
		r.refuse(spec.at("sandboxTemplateRef.name"), "it is needed, or warmPoolRef.name")
	}
	switch w := spec.text("warmpool"); w {
	case "", "default":
	case "none":
		r.note(spec.at("warmpool"), "a pool's members are pristine and used once, so one is as good as a fresh sandbox")
	default:
		if err := schemas.CheckName("name", w); err != nil {
			r.refuse(spec.at("warmpool"), "%v", err)
		}
		c.Pool = w
	}
	c.Env = environment(r, spec)
	lifecycle(r, spec.child("lifecycle"), c)
	if s, given := spec.number("ttlSecondsAfterCreated"); given {
		if s < 1 || s > int64(maxLife.Seconds()) {
			r.refuse(spec.at("ttlSecondsAfterCreated"), "it must be 1 to %d (24 hours)", int64(maxLife.Seconds()))
		}
		c.TTLMS = s * 1000
	}
	if c.TTLMS == 0 && c.Until == nil {
		r.note(spec.at("lifecycle"), "it says no time, so the sandbox ends after 24 hours, the longest that one lives")
	}
	metadata := spec.child("additionalPodMetadata")
	metadata.ignore("Weft has no pods that could carry it", "labels", "annotations")
	metadata.done()
	spec.ignore("nothing evicts a sandbox", "safeToEvict")
	spec.forbid("a sandbox's files are its workspace's, kept by Weft; leave the volumes out", "volumeClaimTemplates")
	spec.done()
	return Object{Kind: Claim, Value: c}
}

func lifecycle(r *reader, l object, c *SandboxClaim) {
	if s := l.text("shutdownTime"); s != "" {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			r.refuse(l.at("shutdownTime"), "it must be a time, as 2026-01-31T08:00:00Z")
		}
		t = t.UTC()
		c.Until = &t
	}
	const kept = "the sandbox ends; its record and last output are kept for a while"
	switch p := l.text("shutdownPolicy"); p {
	case "", "Retain":
	case "Delete", "DeleteForeground":
		r.note(l.at("shutdownPolicy"), kept)
	default:
		r.refuse(l.at("shutdownPolicy"), "%q is not known; Delete, DeleteForeground and Retain are", clip(p))
	}
	if _, given := l.number("ttlSecondsAfterFinished"); given {
		r.note(l.at("ttlSecondsAfterFinished"), kept)
	}
	l.done()
}

// Life is how long a claim's sandbox is to live from now on; an error says why it can't.
func (c *SandboxClaim) Life(now time.Time) (time.Duration, string) {
	d := maxLife
	if c.TTLMS > 0 {
		d = time.Duration(c.TTLMS) * time.Millisecond
	}
	if c.Until != nil {
		left := c.Until.Sub(now)
		if left <= 0 {
			return 0, "spec.lifecycle.shutdownTime: it is past"
		}
		if left > maxLife {
			return 0, "spec.lifecycle.shutdownTime: a sandbox lives 24 hours at most"
		}
		d = min(d, left)
	}
	return d, ""
}
