package broker

import (
	"crypto/rand"
	"fmt"
)

// uuid is a random UUID (RFC 9562, version 4): a topic's id, and the end of a
// group member's.
type uuid [16]byte

func newUUID() (u uuid) {
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // version 4, variant
	return u
}

func (u uuid) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
