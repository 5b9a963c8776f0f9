package sandbox

import "os"

// InitLog is the end of what process 1 wrote to its standard outputs, at most n bytes of it.
func (s *Sandbox) InitLog(n int64) []byte {
	f, err := os.Open(s.path("init.log"))
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, n)
	st, err := f.Stat()
	if err != nil {
		return nil
	}
	k, _ := f.ReadAt(b, max(0, st.Size()-n))
	return b[:k]
}

// OOMKills is how many processes of the sandbox the kernel has killed for want of memory so far.
func (s *Sandbox) OOMKills() int {
	u, err := s.group.Usage()
	if err != nil {
		return 0
	}
	return u.OOMKills
}
