package schemas_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

var update = flag.Bool("update", false, "write testdata anew; released/ is never written")

var at = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// goldens is one example of each record and of what outsiders send. testdata has it as JSON: what a program
// in any language reads and writes. testdata/released has the shapes of every release, which must keep decoding.
func goldens() map[string]any {
	id := schemas.DerivedID("golden")
	later := at.Add(time.Second)
	out := &workspace.Outcome{Exit: &workspace.Exit{Reason: "exited"}, Usage: workspace.Usage{CPUMS: 12, MaxRSSBytes: 9 << 20, StdoutBytes: 6},
		Snapshot: id, FilesChanged: 2, Conflicts: []string{"notes.txt.conflict-" + id + "-1"}, Artifact: id, Leases: 1}
	return map[string]any{
		"submission": workspace.Submission{Agent: "analyst", Input: json.RawMessage(`{"folder":"pkg"}`), Env: map[string]string{"MODE": "fast"}, Priority: workspace.High,
			TimeoutMS: 60000, MaxAttempts: 3, Labels: map[string]string{"team": "core"}, Group: &workspace.Group{ID: "audit-1", Size: 4}, Parent: id, Depth: 1},
		"task": workspace.Task{ID: id, Tenant: "acme", Workspace: "demo", Key: "k1", Principal: "alice", AgentVersion: 2,
			Submission: workspace.Submission{Agent: "analyst"}, State: workspace.Complete,
			Attempt:   workspace.Attempt{Number: 2, Node: "n1", Sandbox: id, QueuedAt: at, StartedAt: &later, CommandAt: &later, FirstOutputAt: &later, EndedAt: &later, Outcome: out},
			Previous:  []workspace.Attempt{{Number: 1, Node: "n2", QueuedAt: at, EndedAt: &later, Fault: &workspace.Fault{Code: "unavailable", Message: "the node was lost"}}},
			CreatedAt: at, FinishedAt: &later, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"queue-item": workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: id, Attempt: 1},
		"workspace":  workspace.Workspace{Name: "demo", Quota: workspace.Quota{MaxRunning: 8}, State: "active", CreatedAt: at},
		"agent": workspace.Agent{Name: "reviewer", Version: 3, Template: "python", Entrypoint: []string{"python3", "review.py"}, Secrets: []workspace.SecretUse{{Name: "report-key", As: "vault"}},
			Resources: workspace.Resources{CPUMillis: 1000, MemoryBytes: 256 << 20}, TimeoutMS: 60000, MaxAttempts: 2, BackoffMS: 1000, CreatedAt: at},
		"template": workspace.Template{Name: "python", Version: 1, Image: "python:1", Level: "standard", CreatedAt: at},
		"pool":     workspace.Pool{Name: "python", Version: 2, Level: "high", Min: 2, Max: 8, MaxAgeMS: 1800000, Alias: "python-pool", CreatedAt: at},
		"pool-status": workspace.PoolStatus{PoolRef: workspace.PoolRef{Tenant: "acme", Workspace: "demo", Name: "python"}, Pool: workspace.Pool{Name: "python", Version: 1, Min: 1, Max: 2, CreatedAt: at},
			Nodes: []workspace.PoolState{{PoolRef: workspace.PoolRef{Tenant: "acme", Workspace: "demo", Name: "python"}, Node: "n1", Ready: 1, Making: 1, Target: 2, Claims: 7, Misses: 1, Oldest: &later,
				Fault: &workspace.Fault{Code: "unavailable", Message: "the image can't be unpacked"}}}},
		"claim": workspace.HeldClaim{Name: "session-1", Template: "python", Sandbox: id, At: at},
		"trigger": workspace.Trigger{Name: "review", Version: 1, Message: &workspace.MessageTrigger{To: "reviewer", From: []string{"analyst"}}, Gather: true,
			Start: workspace.Submission{Agent: "reviewer"}, CreatedAt: at},
		"sandbox":    workspace.Sandbox{ID: id, Tenant: "acme", Workspace: "demo", Principal: "alice", Template: "base", Generation: 1, Node: "n1", State: "running", CreatedAt: at, RunningAt: &later},
		"node":       workspace.NodeRecord{Heartbeat: workspace.Heartbeat{Node: "n1", Incarnation: id, NodeKey: "X", Slots: 4, Used: 1, Levels: []string{"standard", "custom", "high"}, Version: "1"}, State: "ready", SeenAt: at},
		"head":       filesystem.Head{Workspace: "demo", Snapshot: id, Manifest: strings.Repeat("0", 64), Generation: 7, Files: 3, Bytes: 120, Task: id, Attempt: 1, UpdatedAt: at},
		"snapshot":   filesystem.Snapshot{ID: id, Workspace: "demo", Manifest: strings.Repeat("0", 64), Parent: id, Message: "before the change", Principal: "alice", Files: 3, Bytes: 120, CreatedAt: at},
		"artifact":   filesystem.Artifact{ID: id, Workspace: "demo", Task: id, Attempt: 1, Bytes: 1000, Files: 2, Hash: strings.Repeat("0", 64), CreatedAt: at},
		"grant":      secrets.Grant{ID: id, Secret: "report-key", Agent: "reviewer", As: []string{"vault"}, TTLMS: 60000, GrantedBy: "alice", CreatedAt: at},
		"lease":      secrets.Lease{Sandbox: id, Task: id, Attempt: 1, Agent: "reviewer", Node: "n1", Secrets: []string{"report-key"}, Accessor: "a", State: "active", IssuedAt: at, ExpiresAt: later},
		"memory-add": memory.AddRequest{Kind: memory.Semantic, Key: "folder:pkg", Text: "Folder pkg has 12 files."},
	}
}

func TestGolden(t *testing.T) {
	for name, v := range goldens() {
		t.Run(name, func(t *testing.T) {
			b, err := json.MarshalIndent(v, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, '\n')
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err, "run go test ./schemas -update and look at the difference")
			}
			if !bytes.Equal(b, want) {
				t.Fatalf("the wire changed. If it only adds, run go test -update and look at the difference:\n%s", b)
			}
			decodeStrict(t, want, v)
		})
	}
}

// TestReleasedShapesDecode: what any release wrote, this one reads, and knows every field of.
func TestReleasedShapesDecode(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "released", "*", "*.json"))
	if err != nil || len(files) < len(goldens()) {
		t.Fatalf("released shapes: %d files, %v", len(files), err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		v, ok := goldens()[strings.TrimSuffix(filepath.Base(f), ".json")]
		if !ok {
			t.Fatalf("%s: no type decodes it any more", f)
		}
		decodeStrict(t, b, v)
	}
}

func decodeStrict(t *testing.T, b []byte, like any) {
	t.Helper()
	p := reflect.New(reflect.TypeOf(like))
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(p.Interface()); err != nil {
		t.Fatal(err)
	}
}
