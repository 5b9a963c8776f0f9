package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

func testCatalog(t *testing.T) catalog {
	t.Helper()
	root, err := repository()
	require.NoError(t, err)
	c, err := newCatalog(root)
	require.NoError(t, err)
	return c
}

func nothing(provision.Stage) bool { return false }

func TestEveryPurposeCanBePlanned(t *testing.T) {
	c := testCatalog(t)
	for _, p := range purposes {
		t.Run(p.name, func(t *testing.T) {
			found, err := findPurpose(p.name)
			require.NoError(t, err)
			require.Equal(t, p.stages, found.stages)

			stages := p.plan(c, nothing)
			var names []string
			for _, s := range stages {
				names = append(names, s.Name)
				require.NotEmpty(t, s.What)
				require.NotNil(t, s.Make)
				require.Positive(t, s.Expect)
			}
			require.Equal(t, p.stages, names)
			for _, s := range stages {
				for _, need := range s.Needs {
					require.Contains(t, names, need, "%s needs it", s.Name)
				}
			}
			estimate := provision.Estimate(stages, 2)
			require.Greater(t, estimate, time.Minute, "stages that need each other in a circle have no estimate")
			require.Less(t, estimate, 15*time.Minute)
		})
	}
	_, err := findPurpose("party")
	require.ErrorContains(t, err, "demo, bench, test, all")
}

func TestPackagesAreThoseOfWhatIsStillToBeMade(t *testing.T) {
	c := testCatalog(t)
	demo, err := findPurpose("demo")
	require.NoError(t, err)
	packages := func(there func(provision.Stage) bool) []string {
		list, ok := demo.plan(c, there)[0].Recipe.([]string)
		require.True(t, ok)
		require.True(t, slices.IsSorted(list))
		return list
	}
	require.Equal(t, []string{"ca-certificates", "e2fsprogs", "gcc", "libc6-dev", "libseccomp-dev", "mmdebstrap", "mount", "pkg-config"}, packages(nothing))
	require.Equal(t, []string{"ca-certificates", "e2fsprogs", "mmdebstrap", "mount"}, packages(func(s provision.Stage) bool { return s.Name == "runc" }))
	require.Equal(t, []string{"e2fsprogs", "mount"}, packages(func(provision.Stage) bool { return true }))
}

func TestARecipeOfOursChangesWithItsFiles(t *testing.T) {
	c := testCatalog(t)
	require.NotEqual(t, c.stages["openbao"].Recipe, c.stages["ferretdb"].Recipe)
	again := testCatalog(t)
	for name, stage := range c.stages {
		require.Equal(t, stage.Recipe, again.stages[name].Recipe, name)
	}
}
