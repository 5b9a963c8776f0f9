package provision

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writes is a stage that leaves text in bin/name, and counts how often it is made.
func writes(name, version, text string, count *int) Stage {
	return Stage{Name: name, What: name, Version: version, Files: []string{"bin/" + name},
		Make: func(_ context.Context, job *Job) error {
			*count++
			return os.WriteFile(filepath.Join(job.Dir, "bin", name), []byte(text), 0o755)
		}}
}

func one(t *testing.T, store Store, stage Stage) Result {
	t.Helper()
	results, _ := Run(t.Context(), store, []Stage{stage}, 1, nil)
	require.Len(t, results, 1)
	return results[0]
}

func TestAThingIsMadeOnce(t *testing.T) {
	store, count := Store{Dir: t.TempDir()}, 0
	stage := writes("tool", "1", "one", &count)

	first := one(t, store, stage)
	require.Equal(t, Made, first.Outcome)
	require.EqualValues(t, 3, first.Size)
	require.FileExists(t, first.Where)

	second := one(t, store, stage)
	require.Equal(t, Cached, second.Outcome)
	require.Equal(t, first.Where, second.Where)
	require.Equal(t, 1, count)
	require.NoDirExists(t, filepath.Join(store.Dir, "tmp", "tool"), "nothing is left of the making")
}

func TestAThingIsMadeAnewWhenItIsNotTheOneWanted(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, store Store, stage *Stage)
	}{
		{"another version", func(_ *testing.T, _ Store, s *Stage) { s.Version = "2" }},
		{"another recipe", func(_ *testing.T, _ Store, s *Stage) { s.Recipe = []string{"-tags", "other"} }},
		{"a file is gone", func(t *testing.T, store Store, _ *Stage) {
			require.NoError(t, os.Remove(filepath.Join(store.Dir, "bin", "tool")))
		}},
		{"a file was cut short", func(t *testing.T, store Store, _ *Stage) {
			require.NoError(t, os.Truncate(filepath.Join(store.Dir, "bin", "tool"), 1))
		}},
		{"the stamp is damaged", func(t *testing.T, store Store, _ *Stage) {
			require.NoError(t, os.WriteFile(filepath.Join(store.Dir, "stamp", "tool.json"), []byte("{"), 0o644))
		}},
		{"killed before the stamp was written", func(t *testing.T, store Store, _ *Stage) {
			require.NoError(t, os.Remove(filepath.Join(store.Dir, "stamp", "tool.json")))
		}},
		{"it does not run here", func(_ *testing.T, _ Store, s *Stage) {
			broken := true
			s.Works = func(string) error {
				if broken {
					return os.ErrInvalid
				}
				return nil
			}
			inner := s.Make
			s.Make = func(ctx context.Context, job *Job) error { broken = false; return inner(ctx, job) }
		}},
		{"it is to be forgotten", func(t *testing.T, store Store, _ *Stage) { require.NoError(t, store.Forget("tool")) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store, count := Store{Dir: t.TempDir()}, 0
			stage := writes("tool", "1", "one", &count)
			one(t, store, stage)
			tt.change(t, store, &stage)
			require.Equal(t, Made, one(t, store, stage).Outcome)
			require.Equal(t, 2, count)
			require.Equal(t, Cached, one(t, store, stage).Outcome)
		})
	}
}

func TestABuildThatLeavesNothingIsAFailureAndKeepsWhatWasThere(t *testing.T) {
	store, count := Store{Dir: t.TempDir()}, 0
	one(t, store, writes("tool", "1", "one", &count))
	empty := Stage{Name: "tool", What: "tool", Version: "2", Files: []string{"bin/tool"}, Make: func(context.Context, *Job) error { return nil }}

	result := one(t, store, empty)
	require.Equal(t, Failed, result.Outcome)
	require.ErrorContains(t, result.Err, "left no bin/tool")
	text, err := os.ReadFile(filepath.Join(store.Dir, "bin", "tool"))
	require.NoError(t, err)
	require.Equal(t, "one", string(text))
}

func TestARunningProgramCanBeReplaced(t *testing.T) {
	store, count := Store{Dir: t.TempDir()}, 0
	sleeper, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	stage := writes("tool", "1", string(sleeper), &count)
	one(t, store, stage)
	process, err := os.StartProcess(store.where(stage), []string{"tool", "60"}, &os.ProcAttr{})
	require.NoError(t, err)
	defer func() { _ = process.Kill(); _, _ = process.Wait() }()

	stage.Version = "2"
	require.Equal(t, Made, one(t, store, stage).Outcome)
}

func TestALockIsWaitedFor(t *testing.T) {
	store := Store{Dir: t.TempDir()}
	unlock, err := store.Lock(t.Context(), "tool", nil)
	require.NoError(t, err)

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	waited := false
	_, err = store.Lock(short, "tool", func() { waited = true })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, waited)

	unlock()
	unlock, err = store.Lock(t.Context(), "tool", func() { t.Error("nobody holds it") })
	require.NoError(t, err)
	unlock()
}
