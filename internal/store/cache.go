package store

// readCache keeps committed rows that were read or written lately, and keys known to
// be absent, so that hot keys need no read from Pebble. It has two generations: when
// the young one is half the limit it becomes the old one, and the former old one is
// emptied. A row found in the old one moves to the young one.
type readCache struct {
	young, old *table
	limitBytes int
}

func newReadCache(limitBytes int) *readCache {
	return &readCache{young: &table{}, old: &table{}, limitBytes: limitBytes}
}

// get finds a row in the cache; ok is false when the cache knows nothing of the key.
// The value is nil when the key is known to be absent.
func (c *readCache) get(hash uint64, key []byte) (value []byte, timestampMs int64, ok bool) {
	r := c.young.get(hash, key)
	if r == nil {
		o := c.old.get(hash, key)
		if o == nil {
			return nil, 0, false
		}
		if o.absent {
			return nil, 0, true
		}
		if c.full() {
			return c.old.valueOf(o), o.timestampMs, true // moving it would empty where it lies
		}
		_ = c.young.put(hash, key, c.old.valueOf(o), o.timestampMs)
		if r = c.young.get(hash, key); r == nil {
			return nil, 0, false
		}
	}
	if r.absent {
		return nil, 0, true
	}
	return c.young.valueOf(r), r.timestampMs, true
}

func (c *readCache) full() bool { return c.young.bytes() > c.limitBytes/2 }

// put remembers a committed row. The bytes must not lie in the cache itself.
func (c *readCache) put(hash uint64, key, value []byte, timestampMs int64) {
	if len(key)+len(value) > c.limitBytes/16 {
		c.forget(hash, key)
		return
	}
	if c.full() {
		c.old.reset()
		c.young, c.old = c.old, c.young
	}
	_ = c.young.put(hash, key, value, timestampMs) // far below the size of a table
}

// forget drops what is known of a key, when its row is too large to keep.
func (c *readCache) forget(hash uint64, key []byte) {
	for _, t := range []*table{c.young, c.old} {
		if r := t.get(hash, key); r != nil {
			c.reset()
			return
		}
	}
}

func (c *readCache) reset() {
	c.young.reset()
	c.old.reset()
}
