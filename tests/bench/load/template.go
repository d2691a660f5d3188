package main

import (
	"bytes"
	"math/rand/v2"
	"strconv"
)

// template is an object's JSON, cut at the places that differ from one write to the next: @NAME@, @SEQ@ (a number) and
// @TEXT@ (some words).
type template []piece

type piece struct {
	fixed []byte
	fill  func(out []byte, name string, seq, place int) []byte
}

var fills = map[string]func(out []byte, name string, seq, place int) []byte{
	"@NAME@": func(out []byte, name string, _, _ int) []byte { return append(out, name...) },
	"@SEQ@":  func(out []byte, _ string, seq, _ int) []byte { return strconv.AppendInt(out, int64(seq), 10) },
	"@TEXT@": func(out []byte, _ string, seq, place int) []byte {
		at := (seq*7919 + place*1009) % (len(words) - textLength)
		return append(out, words[at:at+textLength]...)
	},
}

const textLength = 900

func parseTemplate(text []byte) template {
	first, found := len(text), ""
	for name := range fills {
		if at := bytes.Index(text, []byte(name)); at >= 0 && at < first {
			first, found = at, name
		}
	}
	if found == "" {
		return template{{fixed: text}}
	}
	return append(template{{fixed: text[:first]}, {fill: fills[found]}}, parseTemplate(text[first+len(found):])...)
}

func (t template) render(name string, seq int) []byte {
	out := make([]byte, 0, 4600)
	for place, each := range t {
		if each.fill != nil {
			out = each.fill(out, name, seq, place)
		} else {
			out = append(out, each.fixed...)
		}
	}
	return out
}

// words is text that compresses about as well as configuration files do: the same filler in every object would make gzip
// look free.
var words = func() []byte {
	random := rand.New(rand.NewPCG(1, 2))
	vocabulary := make([][]byte, 4000)
	for i := range vocabulary {
		word := make([]byte, 3+random.IntN(8))
		for j := range word {
			word[j] = "abcdefghijklmnopqrstuvwxyz0123456789"[random.IntN(36)]
		}
		vocabulary[i] = word
	}
	var text []byte
	for len(text) < 1<<20 {
		text = append(append(text, vocabulary[random.IntN(len(vocabulary))]...), ' ')
	}
	return text
}()
