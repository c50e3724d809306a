import { SLICED_PRECISIONS } from '../../shared/settings/setting-choices.js';
import type { AlignmentPeriods } from '../../shadow-node/predictor/alignment.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';

/** The precisions of figure 3. */
export const RECALL_PRECISIONS: readonly ShadowPrecision[] = ['fp16', 'int8', 'nf4'];

/** All that a run may name, in the order in which they are run. */
export const NAMED_PRECISIONS: readonly ShadowPrecision[] = [...RECALL_PRECISIONS, ...SLICED_PRECISIONS];

/** OD-MoE figure 3: tokens and key-value rows aligned at every iteration, tokens only, nothing. Additionally: key-value rows only. */
export const FIGURE_3_ALIGNMENTS: readonly AlignmentPeriods[] = [
  { token: 1, keyValue: 1 },
  { token: 1, keyValue: 0 },
  { token: 0, keyValue: 1 },
  { token: 0, keyValue: 0 },
];

/** OD-MoE figure 6: T_i KV_j for i and j of these periods, in iterations. */
export const FIGURE_6_PERIODS: readonly number[] = [1, 2, 4, 8, 16];

/** The precision of figure 6. */
const FIGURE_6_PRECISION: ShadowPrecision = 'int8';

export type RecallFigure = 3 | 6;

export interface RecallSetUp {
  precision: ShadowPrecision;
  alignment: AlignmentPeriods;
}

/** The choices on the command line; null: not given. */
export interface SetUpChoice {
  figure: RecallFigure | null;
  precisions: readonly ShadowPrecision[] | null;
  alignments: readonly AlignmentPeriods[] | null;
}

/**
 * The set-ups to run, each once, ordered by precision: the given alignments in every precision, otherwise those of the given figure or of both
 * figures. Pure.
 */
export function chooseSetUps({ figure, precisions, alignments }: SetUpChoice): RecallSetUp[] {
  const all = precisions ?? RECALL_PRECISIONS;
  if (alignments !== null) return sorted(product(all, alignments));
  return sorted([
    ...(figure === 6 ? [] : product(all, FIGURE_3_ALIGNMENTS)),
    ...(figure === 3 ? [] : product(precisions ?? [FIGURE_6_PRECISION], figure6Alignments())),
  ]);
}

function figure6Alignments(): AlignmentPeriods[] {
  return FIGURE_6_PERIODS.flatMap((token) => FIGURE_6_PERIODS.map((keyValue) => ({ token, keyValue })));
}

export function isOfFigure3({ alignment }: RecallSetUp): boolean {
  return FIGURE_3_ALIGNMENTS.some((each) => alignmentName(each) === alignmentName(alignment));
}

export function isOfFigure6({ alignment }: RecallSetUp): boolean {
  return FIGURE_6_PERIODS.includes(alignment.token) && FIGURE_6_PERIODS.includes(alignment.keyValue);
}

/** The form of the command line: TOKEN/KV. */
export function alignmentName({ token, keyValue }: AlignmentPeriods): string {
  return `${token}/${keyValue}`;
}

function product(
  precisions: readonly ShadowPrecision[],
  alignments: readonly AlignmentPeriods[],
): readonly RecallSetUp[] {
  return precisions.flatMap((precision) => alignments.map((alignment) => ({ precision, alignment })));
}

function sorted(setUps: readonly RecallSetUp[]): RecallSetUp[] {
  const unique = new Map(
    setUps.map((setUp) => [`${setUp.precision} ${alignmentName(setUp.alignment)}`, setUp] as const),
  );
  return [...unique.values()].sort(
    (left, right) => NAMED_PRECISIONS.indexOf(left.precision) - NAMED_PRECISIONS.indexOf(right.precision),
  );
}

/** Reads precisions that commas separate; commas within parentheses belong to a name. Null: one is unknown. */
export function readPrecisions(text: string): ShadowPrecision[] | null {
  const names = text.split(/,(?![^(]*\))/).map((name) => name.trim());
  const found = names.flatMap((name) => NAMED_PRECISIONS.filter((precision) => precision === name));
  return found.length === names.length ? found : null;
}
