/**
 * True if a parsed JSON value, or one in it, has an entry of this kind. `depth`: objects and lists in which the entry stands, 1 for those of the value itself.
 * The value may be of any depth. Pure.
 */
export function someEntry(
  value: unknown,
  isWanted: (entry: { key: string; depth: number; value: unknown }) => boolean,
): boolean {
  const waiting: { value: unknown; depth: number }[] = [{ value, depth: 1 }];
  for (let one = waiting.pop(); one !== undefined; one = waiting.pop()) {
    const { depth } = one;
    if (one.value === null || typeof one.value !== 'object') continue;
    for (const [key, inner] of Object.entries(one.value)) {
      if (isWanted({ key, depth, value: inner })) return true;
      waiting.push({ value: inner, depth: depth + 1 });
    }
  }
  return false;
}
