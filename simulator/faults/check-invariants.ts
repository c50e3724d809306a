import type { Violation } from './accounts/violation.js';
import { isDeepStrictEqual } from 'node:util';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { TokenReply } from '../../shared/wire/messages.js';
import type { SimulatedAnswer } from '../cluster/simulated-cluster.js';
import { holdsAllSequences } from './draw-budget.js';
import type { ReferenceAnswer } from './reference-answers.js';
import type { FaultKind, Scenario } from './scenario.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';

/** Errors that a request may fail with when any fault happens to the cluster. */
const OF_ANY_FAULT: ReadonlySet<ErrorCode> = new Set([
  'NO_MAIN',
  'NO_WORKERS',
  'WORKER_LOST',
  'QUEUE_FULL',
  'CANCELLED',
  'TIMEOUT',
]);
/** Further errors that a request may fail with because of one kind of fault. */
const OF_FAULT: Partial<Record<FaultKind, readonly ErrorCode[]>> = {
  failingReads: ['STORAGE_FAILED'],
  flippedBits: ['PACK_CORRUPT'],
  deviceLost: ['DEVICE_LOST'],
  memoryRefused: ['DEVICE_OUT_OF_MEMORY'],
  // Allowed because there may be no other worker that can run the same expert.
  falseValues: ['OUTPUT_NOT_FINITE'],
  // Some of the answer was given out before the lie was found.
  falseNumbers: ['WORKER_DISTRUSTED'],
};

/** An answer must equal the engine's, or fail with a code that a fault explains. */
export function checkAnswer(
  answer: SimulatedAnswer,
  reference: ReferenceAnswer,
  { mustSucceed, scenario, mayHoldLie }: { mustSucceed: boolean; scenario: Scenario; mayHoldLie: boolean },
): Violation[] {
  const [main] = scenario.nodes;
  const place = `the answer asked for at ${answer.askedMs} ms`;
  if (answer.error !== null && answer.error.code === reference.refusal) return [];
  // A lie that main has not found yet shows in the answer.
  if (mayHoldLie && answer.error === null) return [];
  const wrong = mayHoldLie
    ? null
    : (wrongPrompt(answer, reference) ?? firstDifference(answer.tokens, reference.tokens));
  if (wrong !== null) return [{ invariant: 'answers equal the engine', detail: `${place}: ${wrong}` }];
  if (answer.error === null) return answer.finished === null ? [] : checkFinished(answer, reference, place);
  const { code, message } = answer.error;
  // The budget does not hold as many requests as main runs at the same time.
  if (code === 'DEVICE_OUT_OF_MEMORY' && main !== undefined && !holdsAllSequences(scenario.model, main.settings))
    return [];
  const allowed = OF_ANY_FAULT.has(code) || scenario.faults.some(({ kind }) => OF_FAULT[kind]?.includes(code) === true);
  if (isCutByStop(answer, scenario))
    return [
      { invariant: 'a main that is stopped ends its answers first', detail: `${place} failed: ${code}: ${message}` },
    ];
  if (mustSucceed) return [{ invariant: 'requests are answered', detail: `${place} failed: ${code}: ${message}` }];
  return allowed ? [] : [{ invariant: 'failures have a reason', detail: `${place} failed: ${code}: ${message}` }];
}

/** True if the only fault was a stop of main, and main did not finish an answer that was under way. */
function isCutByStop({ error, tokens, overMs }: SimulatedAnswer, { faults, nodes }: Scenario): boolean {
  const [first] = faults;
  const graceMs = nodes[0]?.settings.main.stopGraceMs ?? 0;
  if (first === undefined || !faults.every(({ kind, node }) => kind === 'leave' && node === MAIN_ID)) return false;
  return error?.code === 'NO_MAIN' && tokens.length > 0 && (overMs ?? Infinity) < first.atMs + graceMs;
}

function checkFinished(
  { tokens, finished, promptTokenIds }: SimulatedAnswer,
  reference: ReferenceAnswer,
  place: string,
): Violation[] {
  const differences: string[] = [];
  if (tokens.length !== reference.tokens.length)
    differences.push(`${tokens.length} tokens, not ${reference.tokens.length}`);
  if (finished?.text !== reference.text) differences.push('another text');
  if (finished?.finishReason !== reference.finishReason)
    differences.push(`finished by ${finished?.finishReason}, not ${reference.finishReason}`);
  if (promptTokenIds.join() !== reference.promptTokenIds.join()) differences.push('another prompt');
  return differences.map((detail) => ({ invariant: 'answers equal the engine', detail: `${place}: ${detail}` }));
}

/** The first difference in the prompt's log-probabilities; null: all equal the engine's to the bit. */
function wrongPrompt({ promptLogprobs, finished }: SimulatedAnswer, reference: ReferenceAnswer): string | null {
  const expected = reference.promptLogprobs;
  const place = promptLogprobs.findIndex((token, index) => !isDeepStrictEqual(token, expected[index]));
  if (place >= 0) {
    const [found, wanted] = [promptLogprobs[place], expected[place]].map((token) => JSON.stringify(token));
    return `prompt token ${place} has ${found}, the engine's ${wanted}`;
  }
  if (finished === null || promptLogprobs.length === expected.length) return null;
  return `log-probabilities of ${promptLogprobs.length} prompt tokens, not of ${expected.length}`;
}

/** The first difference in the tokens; null: all equal the engine's to the bit. */
function firstDifference(tokens: readonly TokenReply[], reference: readonly TokenReply[]): string | null {
  for (const [index, token] of tokens.entries()) {
    const expected = reference[index];
    if (expected === undefined || !isDeepStrictEqual(token, expected)) {
      return `token ${index} is ${JSON.stringify(token)}, the engine's ${JSON.stringify(expected)}`;
    }
  }
  return null;
}
