package runtime

import (
	"bufio"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What comes to a sandbox's door is the handler's to answer, also what a library would answer by itself: nothing passes
// the list of what is granted.
func TestNothingAtTheDoorIsAnsweredBesideTheHandler(t *testing.T) {
	d := openDoor(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer d.close()
	for _, request := range []string{"OPTIONS * HTTP/1.1", "GET / HTTP/1.1"} {
		here, there := net.Pipe()
		passed := make(chan struct{})
		go func() { defer close(passed); d.pass(t.Context(), there) }()
		require.NoError(t, here.SetDeadline(time.Now().Add(30*time.Second)))
		_, err := here.Write([]byte(request + "\r\nHost: vault\r\nConnection: close\r\n\r\n"))
		require.NoError(t, err)
		r, err := http.ReadResponse(bufio.NewReader(here), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, r.StatusCode, request)
		_ = here.Close()
		<-passed
	}
}
