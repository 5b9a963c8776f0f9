package scrub_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/secrets/scrub"
)

func TestScrub(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []string
		in     string
		want   string
	}{
		{"nothing to look for", nil, "hello", "hello"},
		{"not there", []string{"hunter2"}, "hello hunter", "hello hunter"},
		{"once", []string{"hunter2"}, "pass=hunter2\n", "pass=***\n"},
		{"twice in a row", []string{"hunter2"}, "hunter2hunter2", "******"},
		{"whole", []string{"hunter2"}, "hunter2", "***"},
		{"after a false start", []string{"hunter2"}, "huhuhunter2", "huhu***"},
		{"several", []string{"alpha-secret", "beta-secret"}, "x alpha-secret y beta-secret z", "x *** y *** z"},
		{"one in the other", []string{"abcdefgh", "cdef"}, "abcdefgh cdef", "*** ***"},
		{"a long one that does not end", []string{"abcdefgh", "cdef"}, "abcdefgX", "ab***gX"},
		{"short ones inside a long one that does not end", []string{"abcdefghijkl", "bcde", "ghij"}, "abcdefghijkX", "a***f***kX"},
		{"overlapping", []string{"abcdef", "defghi"}, "-abcdefghi-", "-***-"},
		{"overlapping itself", []string{"abab"}, "xababababy", "x***y"},
		{"common prefix", []string{"token-1", "token-12345"}, "token-12345 token-1x token-12", "*** ***x ***2"},
		{"short values are left", []string{"abc", ""}, "abc", "abc"},
		{"trailing newline", []string{"hunter2\n"}, "[hunter2]", "[***]"},
		{"terminal newlines", []string{"line-one\nline-two\n"}, "line-one\r\nline-two\r\n$ line-one\nline-two", "***\r\n$ ***"},
		{"binary", []string{"\x00\xff\x00\xfe"}, "a\x00\xff\x00\xfe\x00b", "a***\x00b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scrub.Compile(c.values)
			require.Equal(t, c.want, string(s.Bytes([]byte(c.in))))
			for size := 1; size <= len(c.in); size++ {
				st := s.Stream()
				var out []byte
				for chunk := range slices.Chunk([]byte(c.in), size) {
					out = st.Append(out, chunk)
				}
				require.Equal(t, c.want, string(st.Flush(out)), "chunks of %d", size)
			}
		})
	}
}

func TestOnlyWhatMayBeAValueIsHeldBack(t *testing.T) {
	st := scrub.Compile([]string{"hunter2"}).Stream()
	require.Equal(t, "$ ", string(st.Append(nil, []byte("$ "))))
	require.Zero(t, st.Held())
	require.Equal(t, "ps ", string(st.Append(nil, []byte("ps hunt"))))
	require.Equal(t, 4, st.Held())
	require.Equal(t, "hunt", string(st.Flush(nil)))
	require.Zero(t, st.Held())
	require.Equal(t, "er2", string(st.Append(nil, []byte("er2"))), "after a flush the parts do not meet")
	require.Equal(t, "***", string(st.Append(nil, []byte("hunter2"))), "a value is masked as soon as it is whole")
}

func TestTooMuchIsSaid(t *testing.T) {
	var values []string
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		b := make([]byte, 4096)
		for i := range b {
			b[i] = byte(r.UintN(256))
		}
		values = append(values, string(b))
	}
	s := scrub.Compile(append(values, "hunter2"))
	require.Positive(t, s.Left())
	require.Less(t, s.Left(), 2*len(values))
	require.Equal(t, "***", string(s.Bytes([]byte("hunter2"))), "the shortest are kept")
}

// naive masks the union of all occurrences, the slow and plain way.
func naive(values []string, in string) string {
	hide := make([]bool, len(in))
	joined := make([]bool, len(in)+1) // i and i+1 are inside the same occurrence
	for _, v := range values {
		if len(v) < 4 {
			continue
		}
		for i := 0; i+len(v) <= len(in); i++ {
			if in[i:i+len(v)] == v {
				for j := range len(v) {
					hide[i+j] = true
					if j > 0 {
						joined[i+j] = true
					}
				}
			}
		}
	}
	var b strings.Builder
	for i := range len(in) {
		switch {
		case !hide[i]:
			b.WriteByte(in[i])
		case i == 0 || !hide[i-1] || !joined[i]:
			b.WriteString("***")
		}
	}
	return b.String()
}

func FuzzLikeTheNaiveWay(f *testing.F) {
	f.Add("abcd", "bcde", "abcdefgh", "xxabcdefghbcdeabcd", uint8(3))
	f.Add("aaaa", "aaaaaa", "aaab", "aaaaaaabaaaaab", uint8(1))
	f.Add("abcabc", "cabcab", "zzzz", "abcabcabcabzzzzzabc", uint8(2))
	f.Fuzz(func(t *testing.T, a, b, c, in string, size uint8) {
		values := []string{a, b, c}
		if strings.ContainsAny(a+b+c, "\r\n") || len(in) > 4096 {
			return
		}
		want := naive(values, in)
		s := scrub.Compile(values)
		st := s.Stream()
		var out []byte
		for chunk := range slices.Chunk([]byte(in), int(size)%16+1) {
			out = st.Append(out, chunk)
			require.LessOrEqual(t, st.Held(), max(len(a), len(b), len(c)))
		}
		require.Equal(t, want, string(st.Flush(out)))
		require.Equal(t, want, string(s.Bytes([]byte(in))))
	})
}

func TestRandomAgainstTheNaiveWay(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[r.IntN(2)]
		}
		return string(b)
	}
	for range 20000 {
		values := []string{word(4 + r.IntN(4)), word(4 + r.IntN(8)), word(4 + r.IntN(12))}
		in := word(r.IntN(80))
		st := scrub.Compile(values).Stream()
		var out []byte
		for rest := in; rest != ""; {
			n := 1 + r.IntN(len(rest))
			out = st.Append(out, []byte(rest[:n]))
			rest = rest[n:]
		}
		require.Equal(t, naive(values, in), string(st.Flush(out)), "%q in %q", values, in)
	}
}

func BenchmarkScrub(b *testing.B) {
	logs := []byte(strings.Repeat("2026-11-20T12:00:00Z INFO analyst: found 17 long functions in services/runtime; the longest is run() with 212 lines\n", 600))[:64<<10]
	r := rand.New(rand.NewPCG(5, 6))
	secret := func(n int) string {
		s := make([]byte, n)
		for i := range s {
			s[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[r.IntN(62)]
		}
		return string(s)
	}
	for _, c := range []struct{ count, size int }{{0, 0}, {1, 32}, {4, 32}, {16, 40}, {4, 8}, {4, 3000}, {1, 4}} {
		var values []string
		for range c.count {
			values = append(values, secret(c.size))
		}
		set := scrub.Compile(values)
		b.Run(fmt.Sprintf("values=%d/bytes=%d", c.count, c.size), func(b *testing.B) {
			st, dst := set.Stream(), make([]byte, 0, 128<<10)
			b.SetBytes(int64(len(logs)))
			for b.Loop() {
				dst = st.Append(dst[:0], logs)
			}
		})
	}
	b.Run("worst/prefix-everywhere", func(b *testing.B) {
		set := scrub.Compile([]string{strings.Repeat("a", 31) + "b"})
		text := bytes.Repeat([]byte("a"), 64<<10)
		st, dst := set.Stream(), make([]byte, 0, 128<<10)
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			dst = st.Append(dst[:0], text)
		}
	})
}
