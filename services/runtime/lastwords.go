package runtime

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Bounds of what is kept of a sandbox's output after its end.
const (
	maxTails    = 8
	tailBytes   = 4 << 10
	tailArgv    = 256
	maxWindow   = 64 << 10        // of a secret that can be told from its parts
	harvestTime = 3 * time.Second // the end of a sandbox waits no longer for it
)

// lastWords keeps the ends of what the processes of one sandbox write, for its record after its end. What passes through the
// node is noted as it passes; what runs in the background is asked for at the end, while process 1 still answers.
type lastWords struct {
	scrubbers func(values []string) func() Scrubber

	mu     sync.Mutex
	values []string // that must not appear
	window int      // bytes of the longest of them
	tails  []*tail  // the oldest first
}

func newLastWords(scrubbers func(values []string) func() Scrubber, values []string) *lastWords {
	w := &lastWords{scrubbers: scrubbers}
	w.hide(values)
	return w
}

// hide adds values that must not appear.
func (w *lastWords) hide(values []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range values {
		w.values = append(w.values, v)
		w.window = max(w.window, len(v)+strings.Count(v, "\n")) // as a terminal prints it
	}
}

// tail is the end of one process's output.
type tail struct {
	process string
	argv    []string
	room    int // bytes kept of each stream

	mu   sync.Mutex
	out  [2][]byte
	cut  [2]bool // there was more before
	exit *workspace.Exit
}

// begin notes a process. Of those that have ended, the oldest makes room for it.
func (w *lastWords) begin(process string, argv []string) *tail {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &tail{process: process, argv: short(argv), room: tailBytes + 2*min(w.window, maxWindow)}
	if len(w.tails) == maxTails {
		n := max(0, slices.IndexFunc(w.tails, (*tail).ended))
		w.tails = slices.Delete(w.tails, n, n+1)
	}
	w.tails = append(w.tails, t)
	return t
}

func short(argv []string) []string {
	var out []string
	room := tailArgv
	for _, a := range argv {
		if room <= 0 {
			break
		}
		a = printable([]byte(a[:min(len(a), room)]))
		out, room = append(out, a), room-len(a)-1
	}
	return out
}

// add notes what the process wrote.
func (t *tail) add(stream supervisor.Stream, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	if stream == supervisor.Stderr {
		n = 1
	}
	if len(data) >= t.room {
		t.out[n], t.cut[n] = append(t.out[n][:0], data[len(data)-t.room:]...), true
		return
	}
	if len(t.out[n])+len(data) > 2*t.room { // moved now and then, not with every line
		t.out[n], t.cut[n] = append(t.out[n][:0], t.out[n][len(t.out[n])-t.room:]...), true
	}
	t.out[n] = append(t.out[n], data...)
}

// end notes how the process ended.
func (t *tail) end(exit workspace.Exit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exit = &exit
}

func (t *tail) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exit != nil
}

// harvest asks the sandbox for the ends of what wrote to nobody.
func (w *lastWords) harvest(ctx context.Context, box *sandbox.Sandbox) {
	ctx, cancel := context.WithTimeout(ctx, harvestTime)
	defer cancel()
	ctx, stop := until(ctx, box.Gone(), errGone)
	defer stop()
	list, err := box.Supervisor().List(ctx)
	if err != nil {
		return
	}
	slices.SortFunc(list, func(a, b supervisor.ProcessInfo) int { return a.Start.Compare(b.Start) })
	for _, p := range list[max(0, len(list)-maxTails):] {
		if ctx.Err() != nil {
			return
		}
		if !w.has(p.ID) {
			w.fetch(ctx, box, p)
		}
	}
}

func (w *lastWords) has(process string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.tails, func(t *tail) bool { return t.process == process })
}

// fetch reads the end of a process's output, as far as it has come.
func (w *lastWords) fetch(ctx context.Context, box *sandbox.Sandbox, info supervisor.ProcessInfo) {
	var argv []string
	for _, a := range info.Argv {
		argv = append(argv, string(a))
	}
	t := w.begin(info.ID, argv)
	room := uint64(t.room)
	at := supervisor.Offsets{Stdout: info.End.Stdout - min(info.End.Stdout, room), Stderr: info.End.Stderr - min(info.End.Stderr, room)}
	t.cut = [2]bool{at.Stdout > 0, at.Stderr > 0}
	if e := info.Exit; e != nil {
		t.end(workspace.Exit{Code: e.Code, Signal: e.Signal, Reason: execReason(e.Reason)})
	}
	if at == info.End {
		return
	}
	p, err := box.Supervisor().Attach(ctx, info.ID, at)
	if err != nil {
		return
	}
	defer p.Close()
	for at != info.End {
		ev, err := p.Next(ctx)
		if err != nil || ev.Exit != nil {
			return
		}
		t.add(ev.Stream, ev.Data)
		end := ev.Offset + uint64(len(ev.Data))
		if ev.Stream == supervisor.Stderr {
			at.Stderr = min(end, info.End.Stderr)
		} else {
			at.Stdout = min(end, info.End.Stdout)
		}
	}
}

// all gives what is kept: of process 1 what it said itself, then of the others, the newest last. It is scrubbed, and within
// workspace.MaxLastOutput.
func (w *lastWords) all(init []byte) []workspace.LastOutput {
	w.mu.Lock()
	defer w.mu.Unlock()
	room := workspace.MaxLastOutput
	var out []workspace.LastOutput
	for _, t := range slices.Backward(w.tails) {
		t.mu.Lock()
		o := workspace.LastOutput{Process: t.process, Argv: t.argv, Exit: t.exit}
		room -= 4*tailArgv + 512 // of the fields themselves, and of argv at its longest in JSON
		o.Stderr = fitting(w.text(t.out[1], t.cut[1] || len(t.out[1]) > t.room, t.room), &room)
		o.Stdout = fitting(w.text(t.out[0], t.cut[0] || len(t.out[0]) > t.room, t.room), &room)
		t.mu.Unlock()
		out = append(out, o)
	}
	if said := fitting(w.text(init, true, len(init)), &room); said != "" {
		out = append(out, workspace.LastOutput{Stderr: said})
	}
	slices.Reverse(out)
	return out
}

// text gives the last bytes of a stream as they may be shown. Where it was cut before them, half a secret may stand at the
// beginning, that no scrubber knows: so much as the longest secret is thrown away there, and as much again for what the scrubber holds back.
func (w *lastWords) text(raw []byte, cut bool, room int) string {
	raw = raw[max(0, len(raw)-room):]
	if len(w.values) > 0 {
		s := w.scrubbers(w.values)()
		var out []byte
		if cut {
			if w.window > maxWindow {
				return ""
			}
			n := min(len(raw), 2*w.window)
			_ = s.Append(nil, raw[:n])
			raw = raw[n:]
		}
		out = s.Append(out, raw)
		raw = s.Flush(out)
	}
	return printable(raw[max(0, len(raw)-tailBytes):])
}

// printable drops what a terminal would take as an order.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), "\uFFFD"))
}

// fitting gives as much of the end of s as fits into room bytes of JSON, and takes them from it.
func fitting(s string, room *int) string {
	at := len(s)
	for at > 0 {
		r, n := utf8.DecodeLastRuneInString(s[:at])
		cost := n
		switch {
		case r == '"' || r == '\\' || r == '\n' || r == '\t':
			cost = 2
		case r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029':
			cost = 6
		}
		if cost > *room {
			break
		}
		*room -= cost
		at -= n
	}
	return s[at:]
}
