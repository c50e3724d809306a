/** Up to this count, which is the most that a request may ask for, a short sorted list holds the highest values; above it, all values are sorted. */
const INSERTION_LIMIT = 1024;

/** Ids of the `count` highest values, highest first, equal values by rising id. */
export function highestIds(values: Float32Array, count: number): number[] {
  if (count <= 0) return [];
  if (count > INSERTION_LIMIT) return sortedByValue(values, [...values.keys()]).slice(0, count);
  const ids: number[] = [];
  for (let id = 0; id < values.length; id++) {
    const value = values[id] ?? 0;
    if (ids.length === count && value <= (values[ids[count - 1] ?? 0] ?? 0)) continue;
    let place = ids.length === count ? count - 1 : ids.length;
    while (place > 0 && (values[ids[place - 1] ?? 0] ?? 0) < value) {
      ids[place] = ids[place - 1] ?? 0;
      place--;
    }
    ids[place] = id;
  }
  return ids;
}

/** The ids by falling value, equal values by rising id. Sorts in place. */
export function sortedByValue(values: Float32Array, ids: number[]): number[] {
  return ids.sort((left, right) => (values[right] ?? 0) - (values[left] ?? 0) || left - right);
}
