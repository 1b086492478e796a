// This file owns what a terminal needs: colours if wanted, lines no longer than it is
// wide.

package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// colourful says whether f is a terminal of somebody who wants colours.
func colourful(f *os.File) bool {
	return widthOf(f) > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// narrowest is the least width that lines are folded to; a terminal that does not say
// how wide it is counts as one of 80 columns.
const narrowest, usual = 30, 80

// widthOf is the width of a terminal, 0 of anything else.
func widthOf(f *os.File) int {
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return 0
	}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		return max(int(size.Col), narrowest)
	}
	return usual
}

// show writes text for a reader: on a terminal folded to its width, elsewhere as it is,
// one fact to a line for grep.
func show(f *os.File, text string) error {
	if width := widthOf(f); width > 0 {
		text = fold(text, width)
	}
	_, err := io.WriteString(f, text)
	return err
}

// fold breaks lines at blanks. What is broken goes on beneath the last column of its
// line, as two blanks or more set it off.
func fold(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		indent := 0
		for columns(line) > width {
			if indent == 0 {
				indent = lastColumn(line, width)
			}
			head, tail := cut(line, indent, width)
			b.WriteString(head + "\n")
			line = strings.Repeat(" ", indent) + tail
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// columns counts the characters of a line without the colours in it.
func columns(line string) int {
	n := utf8.RuneCountInString(line)
	for rest := line; ; {
		_, after, ok := strings.Cut(rest, "\x1b[")
		if !ok {
			return n
		}
		code, after, _ := strings.Cut(after, "m")
		n, rest = n-len(code)-3, after
	}
}

// lastColumn is where the last column of the line begins, a little to the right of the
// line's own beginning where that would leave no room.
func lastColumn(line string, width int) int {
	start := len(line) - len(strings.TrimLeft(line, " "))
	at := start
	for i := start; i+2 < len(line) && i < width; i++ {
		if line[i] == ' ' && line[i+1] == ' ' && line[i+2] != ' ' {
			at = i + 2
		}
	}
	at = utf8.RuneCountInString(line[:at])
	if at > width-narrowest/2 || at == start {
		return min(start+2, width/2)
	}
	return at
}

// cut takes what fits off the front: at the last blank, within a long word at the edge.
func cut(line string, indent, width int) (head, tail string) {
	end := len(line) // the byte after the last character that fits
	for i, n := 0, 0; i < len(line); n++ {
		if n == width {
			end = i
			break
		}
		if strings.HasPrefix(line[i:], "\x1b[") {
			i += strings.IndexByte(line[i:], 'm') + 1
			n--
			continue
		}
		_, size := utf8.DecodeRuneInString(line[i:])
		i += size
	}
	if at := strings.LastIndexByte(line[:min(end+1, len(line))], ' '); at > indent && strings.TrimSpace(line[:at]) != "" {
		end = at
	}
	return strings.TrimRight(line[:end], " "), strings.TrimLeft(line[end:], " ")
}
