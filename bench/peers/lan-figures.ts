import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { median } from '../statistics/median.js';
import { type Spread, spreadOf } from '../statistics/spread.js';
import { LLAMA_RPC, type Speeds } from './systems.js';

/** The turns of a system, one of each round. */
export interface LanRow {
  system: string;
  runs: Speeds[];
}

export interface LanFigures {
  system: string;
  decodeTokensPerS: Spread | null;
  prefillTokensPerS: Spread | null;
  tokensAPass: number | null;
  /** Compares the two turns of a round, because the machine's speed changes between the rounds. Null for llama.cpp itself, and without it. */
  decodeOverLlama: Spread | null;
}

/** Figures of all systems on the emulated LAN; null: the system does not report it. Pure. */
export function lanFigures(rows: readonly LanRow[]): LanFigures[] {
  const llama = rows.find(({ system }) => system === LLAMA_RPC);
  return rows.map((row) => {
    const tokensAPass = row.runs.flatMap((run) => run.tokensAPass ?? []);
    return {
      system: row.system,
      decodeTokensPerS: spreadOrNull(row.runs.map(({ decodeTokensPerS }) => decodeTokensPerS)),
      prefillTokensPerS: spreadOrNull(row.runs.flatMap(({ prefillTokensPerS }) => prefillTokensPerS ?? [])),
      tokensAPass: tokensAPass.length === 0 ? null : median(tokensAPass),
      decodeOverLlama: llama === undefined || llama === row ? null : spreadOrNull(ratios(row, llama)),
    };
  });
}

function ratios(row: LanRow, llama: LanRow): number[] {
  return row.runs.map(({ decodeTokensPerS }, round) => {
    const { decodeTokensPerS: ofLlama } = requirePresent(llama.runs[round], 'each system has a turn in each round');
    return decodeTokensPerS / ofLlama;
  });
}

function spreadOrNull(values: readonly number[]): Spread | null {
  return values.length === 0 ? null : spreadOf(values);
}
