/**
 * A map with a limit on its entries. A full map forgets the entry that was used least recently. `get` and `set` count as use and move the entry
 * to the end. `has` and iteration do not count as use.
 */
export class RecentMap<Key, Value> extends Map<Key, Value> {
  constructor(private readonly limit: number) {
    super();
  }

  override get(key: Key): Value | undefined {
    const value = super.get(key);
    if (value !== undefined) this.set(key, value);
    return value;
  }

  override set(key: Key, value: Value): this {
    this.delete(key);
    super.set(key, value);
    if (this.size > this.limit) this.forgetOldest();
    return this;
  }

  private forgetOldest(): void {
    const oldest = this.keys().next();
    if (oldest.done !== true) this.delete(oldest.value);
  }

  /** The value of the key. `make` makes it if the map has none. */
  of(key: Key, make: () => Value): Value {
    const known = this.get(key);
    if (known !== undefined) return known;
    const made = make();
    this.set(key, made);
    return made;
  }
}
