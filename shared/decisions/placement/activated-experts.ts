import type { SliceReading } from '../../model/tensor-source.js';

/** A row of a pass, and the rank (0..k-1) that an expert has for it. */
export interface ActivatedRow {
  row: number;
  rank: number;
  /** How the row reads a sliced expert; left out where experts are computed exactly. */
  reading?: SliceReading;
}

/**
 * The experts that a pass's rows activate in one layer, each with the rows that chose it, in the order of their first appearance (rows,
 * then ranks). `choices`: the router's choices, rows x k by rank. `readings`: in the same order; empty where experts are computed exactly.
 */
export function activatedExperts(
  choices: ArrayLike<number>,
  expertsPerToken: number,
  readings: readonly SliceReading[] = [],
): Map<number, readonly ActivatedRow[]> {
  const activated = new Map<number, ActivatedRow[]>();
  for (const [index, expert] of Array.from(choices).entries()) {
    const place = { row: Math.floor(index / expertsPerToken), rank: index % expertsPerToken };
    const reading = readings[index];
    const chosen = reading === undefined ? place : { ...place, reading };
    const rows = activated.get(expert);
    if (rows === undefined) activated.set(expert, [chosen]);
    else rows.push(chosen);
  }
  return activated;
}
