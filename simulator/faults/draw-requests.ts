import type { GenerateRequest } from '../../shared/wire/messages.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { BLOCK_POSITIONS, contextPositions } from './draw-budget.js';
import { drawRequest, drawTokens } from './draw-request.js';
import {
  BUSY_MS,
  SHARED_BEGINNINGS,
  type ScenarioModel,
  type ScenarioNode,
  type ScenarioRequest,
  type SharedBeginning,
} from './scenario.js';

/** Lengths of prompts that other prompts begin with; rows of fewer than 16 tokens are not used again. */
const SHARED_LENGTHS = [18, 33, 60, 90];
/** Tokens that such a prompt has in addition to its beginning. */
const MORE_LENGTHS = [1, 5, 20];
/** Tokens below the end of a block, so that answers go beyond it. */
const BEFORE_BLOCK_END = 8;
/** With fewer rows per pass, a prompt of a whole block takes too many passes. */
const ROWS_FOR_LONG_PROMPTS = 3;

/** Requests come one by one, or all at once; some of their prompts begin alike. */
export function drawRequests(
  random: SeededRandom,
  nodes: readonly ScenarioNode[],
  model: ScenarioModel,
): ScenarioRequest[] {
  const isBurst = random.chance(0.25);
  const count = isBurst ? random.pick([4, 4, 8, 16]) : random.pick([1, 1, 2, 2, 3, 4, 8]);
  const burstMs = 100 + random.int(BUSY_MS - 100);
  const beginning = random.chance(hasBlocks(model) ? 0.9 : 0.5)
    ? drawBeginning(random.fork('beginning'), nodes, model)
    : null;
  const requests: ScenarioRequest[] = [];
  for (let index = 0; index < count; index++) {
    const drawn = {
      atMs: isBurst ? burstMs : 100 + random.int(BUSY_MS - 100),
      request: drawRequest(random),
      cancelAfterMs: random.chance(0.15) ? random.int(300) : null,
      readMs: random.chance(0.1) ? 1 + random.int(100) : 0,
      begins: null,
      follows: null,
    };
    const shares = beginning !== null && random.chance(0.75);
    requests.push(shares ? withBeginning(random.fork(`shares ${index}`), drawn, beginning, requests) : drawn);
  }
  return requests;
}

/** Draws a prompt of about a block's length if passes have enough rows for it and the model enough positions. */
function drawBeginning(random: SeededRandom, nodes: readonly ScenarioNode[], model: ScenarioModel): number[] {
  const settings = nodes[0]?.settings;
  const rows = settings === undefined ? 0 : Math.min(settings.batching.maxRows, settings.main.prefillRows);
  const isLong = hasBlocks(model) && rows >= ROWS_FOR_LONG_PROMPTS && random.chance(0.9);
  return drawTokens(random, isLong ? BLOCK_POSITIONS - random.int(BEFORE_BLOCK_END) : random.pick(SHARED_LENGTHS));
}

function withBeginning(
  random: SeededRandom,
  drawn: ScenarioRequest,
  beginning: readonly number[],
  earlier: readonly ScenarioRequest[],
): ScenarioRequest {
  const turns = earlier.filter(({ begins, request }) => isTurn(begins) && request.maxTokens > 0);
  const first = turns.length === 0 ? null : random.pick(turns);
  const kind = random.pick(SHARED_BEGINNINGS);
  const begins = kind === 'nextTurn' && first === null ? 'same' : kind;
  const more = drawTokens(random, random.pick(MORE_LENGTHS));
  if (begins === 'nextTurn' && first !== null) {
    const atMs = Math.min(BUSY_MS, first.atMs + random.int(800));
    return { ...drawn, atMs, begins, request: withPrompt(drawn.request, more), follows: first.request };
  }
  const cut = beginning.slice(0, Math.max(1, beginning.length - random.int(20)));
  const prompt = { same: [...beginning], longer: [...beginning, ...more], shorter: cut, nextTurn: more }[begins];
  return { ...drawn, begins, request: withPrompt(drawn.request, prompt) };
}

/** True if sequences may have several blocks of memory. */
function hasBlocks(model: ScenarioModel): boolean {
  return contextPositions(model) > BLOCK_POSITIONS;
}

/** True if a next turn may follow the request: its beginning was drawn, and it has no earlier turn. */
function isTurn(begins: SharedBeginning | null): boolean {
  return begins !== null && begins !== 'nextTurn';
}

function withPrompt(request: GenerateRequest, promptTokenIds: number[]): GenerateRequest {
  return { ...request, text: '', messages: [], promptTokenIds };
}
