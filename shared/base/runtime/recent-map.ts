/**
 * A map that remembers so many entries; of more, the one that was used least recently is forgotten. To get or to set an entry is to use it;
 * it comes last then. To ask whether it is there, or to go through all of them, is no use.
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

  /** The value of the key, made where none is remembered. */
  of(key: Key, make: () => Value): Value {
    const known = this.get(key);
    if (known !== undefined) return known;
    const made = make();
    this.set(key, made);
    return made;
  }
}
