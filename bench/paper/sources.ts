import type { Measure, Range } from './measurement.js';
import { paperSetUp, type SetUp } from './set-up.js';

/** A source of predictions, in one set-up. Main makes no drafts. */
export interface SourceRow {
  source: string;
  setUp: string;
  decodeTokensPerS: number;
  /** Lowest and highest value among the prompts. */
  range: Range;
  /** Decode speed relative to the shadow's in the same set-up. */
  overShadow: number;
  recall: number | null;
  /** True: every answer has the same tokens as with the shadow. */
  tokensEqual: boolean;
}

/** The shadow comes first, because the others are compared with it. The pack's trained maps speak beside it, where it is late. */
const SOURCES: readonly [string, Partial<SetUp>][] = [
  ['shadow, maps beside it', {}],
  ['trained maps', { prediction: 'trained' }],
  ['router-ahead, 1 layer', { prediction: 'router-ahead' }],
  ['router-ahead, 2 layers', { prediction: 'router-ahead', layersAhead: 2 }],
  ['none', { prediction: 'off' }],
];

const SET_UPS: readonly [string, Partial<SetUp>][] = [
  ["paper's set-up", {}],
  [
    'packed loads, 2 slots, dealt to all workers',
    { expertStorage: 'fixed4', slots: 2, spread: 'all', streamKeyValues: true },
  ],
];

/** Answers of a pack that has trained maps, with each source of predictions. */
export async function speedBySource(measure: Measure, inputTokens: number, outputTokens: number): Promise<SourceRow[]> {
  const rows: SourceRow[] = [];
  for (const [setUp, changes] of SET_UPS) {
    const shadowed = await measure(paperSetUp(changes), inputTokens, outputTokens);
    for (const [source, ofSource] of SOURCES) {
      const measured = await measure(paperSetUp({ ...changes, ...ofSource }), inputTokens, outputTokens);
      rows.push({
        source,
        setUp,
        decodeTokensPerS: measured.decodeTokensPerS,
        range: measured.decodeRange,
        overShadow: measured.decodeTokensPerS / shadowed.decodeTokensPerS,
        recall: measured.recall,
        tokensEqual: JSON.stringify(measured.tokenIds) === JSON.stringify(shadowed.tokenIds),
      });
    }
  }
  return rows;
}
