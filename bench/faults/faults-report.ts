import { neverDrawn, type DrawnCounts } from '../../simulator/faults/count-drawn.js';
import { describeScenario } from '../../simulator/faults/describe-scenario.js';
import type { Happened } from '../../simulator/faults/happened.js';
import type { Scenario } from '../../simulator/faults/scenario.js';
import type { Failure } from './shrink-failures.js';

export interface FaultsReport {
  seeds: number;
  failures: Failure[];
  /** Hash over the histories of all seeds: the same on every run. */
  history: string;
  /** What the mains of all seeds have done. */
  happened: Happened;
  drawn: DrawnCounts;
}

/** For people. `shown`: the scenario of the only seed. */
export function faultsText(
  { seeds, failures, history, happened, drawn }: FaultsReport,
  { tookMs, shown }: { tookMs: number; shown: Scenario | null },
): string {
  const failed = new Set(failures.map(({ seed }) => seed)).size;
  const lines = [
    ...(shown === null ? drawnLines(drawn) : describeScenario(shown)),
    '',
    ...failures.flatMap(failureLines),
    happenedLine(happened),
    `${seeds} seeds in ${(tookMs / 1000).toFixed(1)} s, ${failed} failed; history ${history}`,
  ];
  return `${lines.join('\n')}\n`;
}

function drawnLines(drawn: DrawnCounts): string[] {
  const never = neverDrawn(drawn);
  const counts = Object.entries(drawn).map(
    ([name, ofName]) =>
      `${name}: ${Object.entries(ofName)
        .map(([value, count]) => `${value} ${count}`)
        .join(', ')}`,
  );
  return [...counts, ...(never.length === 0 ? [] : [`never drawn: ${never.join('; ')}`])];
}

function happenedLine(happened: Happened): string {
  const { passes, sharedPasses, brokenSharedPasses, preemptions, cachedTokens, droppedPrefixes } = happened;
  const { cancelledAnswers, fetchedBytes, falsePieces } = happened;
  return (
    `${passes} passes, ${sharedPasses} of several sequences, in which ${brokenSharedPasses} operations failed; ` +
    `${cancelledAnswers} answers were cancelled; ${preemptions} times memory was given back, ` +
    `${cachedTokens} tokens of prompts were there, ${droppedPrefixes} prefixes were dropped; ` +
    `${fetchedBytes} bytes of packs were fetched, ${falsePieces} times peers gave false ones`
  );
}

function failureLines({ seed, invariant, detail, scenario }: Failure): string[] {
  const smallest =
    scenario.length === 0 ? [] : ['  the smallest scenario that fails so:', ...scenario.map((line) => `    ${line}`)];
  return [`seed ${seed}: ${invariant}: ${detail}`, ...smallest, `  again: odmoe bench faults --seed ${seed}`, ''];
}
