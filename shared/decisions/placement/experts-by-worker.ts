/** worker id -> its experts, both in the assignment's order. `alsoWithout`: workers that come first, with an empty list if they have no experts. */
export function expertsByWorker(
  assignment: Iterable<readonly [expert: number, workerId: string]>,
  alsoWithout: readonly string[] = [],
): Map<string, number[]> {
  const byWorker = new Map<string, number[]>(alsoWithout.map((id) => [id, []]));
  for (const [expert, workerId] of assignment) {
    const experts = byWorker.get(workerId);
    if (experts === undefined) byWorker.set(workerId, [expert]);
    else experts.push(expert);
  }
  return byWorker;
}
