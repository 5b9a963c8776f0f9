package manifest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/weftmesh/weft/schemas/workspace"
)

// sandboxTemplate reads a SandboxTemplate as a template.
func sandboxTemplate(r *reader, root object) Object {
	t := &workspace.Template{}
	spec := root.child("spec")
	pod := spec.child("podTemplate")
	network(r, spec)
	switch p := spec.text("envVarsInjectionPolicy"); p {
	case "", "Overrides":
	default:
		r.refuse(spec.at("envVarsInjectionPolicy"), "%q can't be enforced: who makes a sandbox in Weft sets its environment; say Overrides or leave it out", clip(p))
	}
	spec.forbid("a sandbox's files are its workspace's, kept by Weft; leave the volumes out", "volumeClaimTemplates")
	spec.ignore("claims can bring no volumes anyway", "volumeClaimTemplatesPolicy")
	spec.forbid("a credential comes to a sandbox by a grant: see 'weft secret grant'", "generatedSecrets")
	spec.forbid("a sandbox is reached by its name on the mesh; there is no service address", "service")
	spec.done()
	metadata := pod.child("metadata")
	metadata.ignore("Weft has no pods that could carry it", "labels", "annotations")
	metadata.done()
	podSpec(r, pod.child("spec"), t)
	pod.done()
	return Object{Kind: Template, Value: t}
}

// network takes what denies everything, which is what Weft does.
func network(r *reader, spec object) {
	p := spec.child("networkPolicy")
	p.forbid("rules can't be stated here: nothing reaches a sandbox's ports but 'weft sandbox port-forward'", "ingress")
	p.forbid("rules can't be stated here: a sandbox reaches nothing but the mesh", "egress")
	p.done()
	switch m := spec.text("networkPolicyManagement"); m {
	case "":
	case "Managed":
		r.note(spec.at("networkPolicyManagement"), "a sandbox reaches nothing but the mesh, and only the mesh reaches it")
	default:
		r.refuse(spec.at("networkPolicyManagement"), "%q leaves the network to others; Weft never does", clip(m))
	}
}

func podSpec(r *reader, s object, t *workspace.Template) {
	volumes := podVolumes(r, s)
	root := newIdentity(r)
	root.read(s.child("securityContext"), true)
	runtimeClass(r, s, t)
	cs := s.children("containers")
	if len(cs) == 0 {
		r.refuse(s.at("containers"), "one container is needed")
	}
	for i, c := range cs {
		if i > 0 {
			r.refuse(c.path, "a sandbox is one container")
			continue
		}
		container(r, c, t, root, volumes)
	}
	if token, given := s.flag("automountServiceAccountToken"); given && token {
		r.refuse(s.at("automountServiceAccountToken"), "there are no service accounts; a credential comes by a grant: see 'weft secret grant'")
	}
	if name := s.text("serviceAccountName"); name == "default" {
		r.note(s.at("serviceAccountName"), "there are no service accounts")
	} else if name != "" {
		r.refuse(s.at("serviceAccountName"), "there are no service accounts; the sandbox acts as who makes it")
	}
	if os := s.child("os"); os.m != nil {
		if name := os.text("name"); name != "linux" {
			r.refuse(os.at("name"), "only linux runs")
		}
		os.done()
	}
	s.ignore("a sandbox has no main process that could be restarted", "restartPolicy")
	s.ignore("it only permits what Weft decides otherwise", "tolerations", "enableServiceLinks", "shareProcessNamespace", "dnsPolicy")
	s.forbid("a node is chosen by a workspace's label weft.dev/node", "affinity", "topologySpreadConstraints", "nodeName", "schedulerName", "priorityClassName", "priority", "preemptionPolicy", "overhead", "resourceClaims", "schedulingGates")
	s.forbid("a sandbox never shares the node's namespaces", "hostNetwork", "hostPID", "hostIPC")
	s.forbid("a sandbox is one container", "initContainers", "ephemeralContainers")
	s.forbid("images are on the node already: see 'weft template'", "imagePullSecrets")
	s.forbid("the name of a sandbox's host is that of who it runs as", "hostname", "subdomain", "setHostnameAsFQDN", "hostAliases", "dnsConfig")
	s.forbid("say it in the claim: lifecycle.shutdownTime", "activeDeadlineSeconds", "terminationGracePeriodSeconds")
	s.done()
}

// runtimeClass gives the security level.
func runtimeClass(r *reader, s object, t *workspace.Template) {
	switch c := s.text("runtimeClassName"); c {
	case "", "runc":
	case "gvisor", "runsc":
		t.Level = workspace.LevelHigh
	default:
		r.refuse(s.at("runtimeClassName"), "%q is not known: gvisor is level high, runc level standard; another containerd runtime takes a Template of Weft with level: custom and custom.runtime", clip(c))
	}
	sel := s.child("nodeSelector")
	if v, _ := sel.m["sandbox.gke.io/runtime"].(string); v == "gvisor" && t.Level == workspace.LevelHigh {
		sel.take("sandbox.gke.io/runtime")
		r.note(sel.at("sandbox.gke.io/runtime"), "every node has gVisor for level high")
	}
	for _, k := range sortedKeys(sel.m) {
		r.refuse(sel.at(clip(k)), "a node is chosen by a workspace's label weft.dev/node")
	}
}

// podVolumes gives the names of volumes that are empty directories; no others can be had.
func podVolumes(r *reader, s object) map[string]bool {
	out := map[string]bool{}
	for _, v := range s.children("volumes") {
		name := v.text("name")
		if dir, ok := v.m["emptyDir"].(map[string]any); ok {
			delete(v.m, "emptyDir")
			d := object{r: r, path: v.at("emptyDir"), m: dir}
			d.ignore("the sizes are the template's resources", "sizeLimit")
			d.ignore("it is memory or disk by where it is mounted", "medium")
			d.done()
			out[name] = true
		}
		v.forbid("files come by the workspace, credentials by a grant; only emptyDir can be had", sortedKeys(v.m)...)
	}
	return out
}

// writable are the directories that every sandbox can write.
var writable = []string{"/tmp", "/workspace", "/home/agent", "/dev/shm"}

func container(r *reader, c object, t *workspace.Template, root *identity, volumes map[string]bool) {
	c.text("name")
	if t.Image = c.text("image"); t.Image == "" {
		r.refuse(c.at("image"), "it is needed")
	}
	if t.Workdir = c.text("workingDir"); t.Workdir != "" && (!path.IsAbs(t.Workdir) || path.Clean(t.Workdir) != t.Workdir) {
		r.refuse(c.at("workingDir"), "it must be an absolute, clean path")
	}
	t.Env = environment(r, c)
	resources(r, c.child("resources"), &t.Resources)
	root.read(c.child("securityContext"), false)
	root.settle(c.at("securityContext"), t)
	command(r, c)
	for _, m := range c.children("volumeMounts") {
		name, at := m.text("name"), path.Clean(m.text("mountPath"))
		if !volumes[name] {
			r.refuse(m.at("name"), "there is no such empty volume")
		} else if !slices.Contains(writable, at) {
			r.refuse(m.at("mountPath"), "an empty volume can only be where every sandbox has one: %s", strings.Join(writable, ", "))
		} else {
			r.note(m.at("mountPath"), "every sandbox can write there")
		}
		m.forbid("it makes no sense for an empty volume", "readOnly", "subPath", "subPathExpr", "mountPropagation", "recursiveReadOnly")
		m.done()
	}
	c.ignore("any port can be reached with 'weft sandbox port-forward'", "ports")
	c.ignore("images are on the node already", "imagePullPolicy")
	c.ignore("each command has its own streams", "stdin", "stdinOnce", "tty", "terminationMessagePath", "terminationMessagePolicy")
	c.forbid("nothing runs before the first command, so there is nothing to probe; a member is ready when its supervisor answers", "livenessProbe", "readinessProbe", "startupProbe")
	c.forbid("nothing runs before the first command; run it as one", "lifecycle")
	c.forbid("a sandbox is never restarted", "restartPolicy", "restartPolicyRules", "resizePolicy")
	c.forbid("name each variable under env; credentials come by a grant: see 'weft secret grant'", "envFrom")
	c.forbid("there are no block devices in a sandbox", "volumeDevices")
	c.done()
}

// command takes what only keeps a pod alive: a sandbox lives without it.
func command(r *reader, c object) {
	argv := append(c.texts("command"), c.texts("args")...)
	if len(argv) == 0 {
		return
	}
	switch idle := strings.TrimPrefix(strings.Join(argv, " "), "/bin/"); idle {
	case "sleep infinity", "sleep inf", "tail -f /dev/null", "sh -c sleep infinity", "bash -c sleep infinity", "sh -c tail -f /dev/null":
		r.note(c.at("command"), "a sandbox lives without a process that keeps it alive")
	default:
		r.refuse(c.at("command"), "a sandbox runs what 'weft sandbox exec' tells it and nothing before; for a program of its own define an Agent with this entrypoint")
	}
}

// environment reads the list of variables.
func environment(r *reader, c object) map[string]string {
	var out map[string]string
	for _, e := range c.children("env") {
		name := e.text("name")
		value := e.text("value")
		e.text("containerName") // of a claim; a sandbox has one
		e.forbid("only plain values can be had; credentials come by a grant: see 'weft secret grant'", "valueFrom")
		e.done()
		if name == "" {
			r.refuse(e.at("name"), "it is needed")
		}
		if strings.Contains(value, "$(") {
			r.refuse(e.at("value"), "references as $(NAME) are not replaced; write the value")
		}
		if _, twice := out[name]; twice {
			r.refuse(e.at("name"), "%q is given twice", clip(name))
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
	}
	return out
}

// What a sandbox may use where its template says nothing. A request up to that needs no limit of its own.
var defaults = map[string]int64{"cpu": 1000, "memory": 512 << 20, "ephemeral-storage": 1 << 30}

// resources takes limits as limits. Requests are not reserved in Weft: where only a request is given, the limit is
// what every sandbox has or the request, whichever is more.
func resources(r *reader, o object, into *workspace.Resources) {
	limits, requests := o.child("limits"), o.child("requests")
	for _, k := range []struct {
		name string
		per  int64
		into *int64
	}{{"cpu", 1000, &into.CPUMillis}, {"memory", 1, &into.MemoryBytes}, {"ephemeral-storage", 1, &into.DiskBytes}} {
		limit, request := limits.quantity(k.name, k.per), requests.quantity(k.name, k.per)
		if limit > 0 && request > limit {
			r.refuse(requests.at(k.name), "the request is over the limit")
		}
		switch {
		case limit > 0:
			*k.into = limit
		case request > defaults[k.name]:
			*k.into = request
		}
		if request > 0 {
			r.note(requests.at(k.name), "nothing is reserved, but the limit is at least as much")
		}
	}
	for _, x := range []object{limits, requests} {
		x.forbid("only cpu, memory and ephemeral-storage can be had", sortedKeys(x.m)...)
	}
	o.forbid("there are no resource claims", "claims")
	o.done()
}

// quantity takes an amount, 0 where there is none.
func (o object) quantity(key string, per int64) int64 {
	v := o.take(key)
	if v == nil {
		return 0
	}
	n, err := quantity(fmt.Sprint(v), per)
	if err != nil {
		o.r.refuse(o.at(key), "%v", err)
	}
	return n
}
