package manifest

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden reads each file of testdata: its golden file has what it comes to, or why it is refused.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".yaml"), func(t *testing.T) {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			var got []byte
			objects, err := Read(b)
			if err != nil {
				got = []byte(err.Error() + "\n")
			} else {
				got, err = json.MarshalIndent(objects, "", "  ")
				require.NoError(t, err)
				got = append(got, '\n')
			}
			golden := strings.TrimSuffix(f, ".yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, got, 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err, "run go test ./services/cli/manifest -update and look at the difference")
			require.Equal(t, string(want), string(got))
			require.Equal(t, strings.HasPrefix(filepath.Base(f), "bad-"), !json.Valid(got), "files that are refused begin with bad-")
		})
	}
}

func TestQuantity(t *testing.T) {
	for _, c := range []struct {
		in   string
		per  int64
		want int64
	}{
		{"500m", 1000, 500}, {"1", 1000, 1000}, {"0.5", 1000, 500}, {"1.0005", 1000, 1001}, {"2e3", 1, 2000}, {"2E3", 1, 2000}, {"1e-3", 1000, 1},
		{"512Mi", 1, 512 << 20}, {"1Gi", 1, 1 << 30}, {"1.5Gi", 1, 3 << 29}, {"3Ki", 1, 3072}, {"1G", 1, 1e9}, {"128k", 1, 128e3}, {"100u", 1000, 1}, {"1n", 1000, 1}, {"+3", 1, 3}, {"1Ei", 1, 1 << 60}, {"1048576", 1, 1 << 20},
	} {
		got, err := quantity(c.in, c.per)
		require.NoError(t, err, c.in)
		require.Equal(t, c.want, got, c.in)
	}
	for _, in := range []string{"", "m", "Mi", "0", "-1", "1KiB", "1mi", "12 Mi", "1Mi ", "0x10", "1/3", "1_000", "1e99", "1e1Mi", "e3", "1e", "NaN", "Inf", "2Ei", "1mm", strings.Repeat("9", 50), "1p3"} {
		_, err := quantity(in, 1)
		require.Error(t, err, in)
	}
}

func FuzzQuantity(f *testing.F) {
	for _, s := range []string{"500m", "1.5Gi", "2e3", "-0", "1e-18", "999999999999999999Ei"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := quantity(s, 1000)
		if err == nil && (n < 1 || n > 1<<60) {
			t.Fatalf("%q is %d", s, n)
		}
		if whole, werr := quantity(s, 1); err == nil && werr == nil && (whole-1)*1000 >= n {
			t.Fatalf("%q is %d, but %d thousandths", s, whole, n)
		}
	})
}

func TestAmounts(t *testing.T) {
	for in, want := range map[string]int64{"512MiB": 512 << 20, "512M": 512 << 20, "512Mi": 512 << 20, "512MB": 512 << 20, "1GiB": 1 << 30, "64B": 64, "1.5KiB": 1536} {
		got, err := byteSize(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	_, err := byteSize("much")
	require.ErrorContains(t, err, `"much" is no size, as 512MiB`)
}

// TestOwnNamesOfFields: every field of every definition can be said as it is on the wire and in camelCase.
func TestOwnNamesOfFields(t *testing.T) {
	in := map[string]any{"image": "x", "level": "custom", "rootInside": true, "writable_root": true,
		"resources": map[string]any{"cpu": json.Number("2"), "memory": "512MiB", "diskBytes": json.Number("7"), "pids": json.Number("9")},
		"custom":    map[string]any{"readOnly": []any{"/etc"}, "tmp": "64MiB"}}
	v, err := decode(in, "t", func(t *workspace.Template) *string { return &t.Name })
	require.NoError(t, err)
	require.Equal(t, &workspace.Template{Name: "t", Image: "x", Level: "custom", Resources: workspace.Resources{CPUMillis: 2000, MemoryBytes: 512 << 20, DiskBytes: 7, PIDs: 9},
		Isolation: workspace.Isolation{RootInside: true, WritableRoot: true, Custom: &workspace.Custom{ReadOnly: []string{"/etc"}, Tmp: 64 << 20}}}, v)
}

func TestClaimsLife(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *time.Time { t := now.Add(d); return &t }
	for _, c := range []struct {
		claim SandboxClaim
		want  time.Duration
		why   string
	}{
		{SandboxClaim{}, 24 * time.Hour, ""},
		{SandboxClaim{TTLMS: 1000}, time.Second, ""},
		{SandboxClaim{Until: at(time.Hour)}, time.Hour, ""},
		{SandboxClaim{TTLMS: 1000, Until: at(time.Hour)}, time.Second, ""},
		{SandboxClaim{Until: at(-time.Second)}, 0, "past"},
		{SandboxClaim{Until: at(25 * time.Hour)}, 0, "24 hours at most"},
	} {
		d, why := c.claim.Life(now)
		require.Equal(t, c.want, d)
		require.Contains(t, why, c.why)
		require.Equal(t, c.why == "", why == "")
	}
}

// FuzzRead: whatever is in a file, it is either refused or comes to definitions with proper names; nothing panics.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		objects, err := Read(b)
		if err != nil {
			return
		}
		for _, o := range objects {
			if o.Value == nil || o.Name == "" || Order(o.Kind) < 0 {
				t.Fatalf("%+v", o)
			}
			if c, ok := o.Value.(*SandboxClaim); ok && schemas.CheckName("x", c.Template+c.Pool) != nil && len(c.Template+c.Pool) < 60 {
				t.Fatalf("%+v", c)
			}
			if p, ok := o.Value.(*workspace.Pool); ok && o.Namespace != "" && (p.Max < 1 || p.Min > p.Max) {
				t.Fatalf("%+v", p)
			}
		}
	})
}
