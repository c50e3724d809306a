import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { WeightFormChoice } from '../../engine/loading/choose-weight-form.js';
import type { ResidentWeights } from '../../native/index.js';
import type {
  Finished,
  GenerateReply,
  LogicalCacheMetrics,
  PromptToken,
  Started,
  TokenLogprob,
  TokenReply,
} from '../../shared/wire/messages.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { nodeJson } from './node-json.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { FREE_STEPS } from '../../shared/decisions/slices/miss-budget.js';
import { arithmeticName, isExact } from '../../shared/settings/quality.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

export interface RenderOptions {
  /** Print one JSON object when the answer is complete. */
  json: boolean;
  /** Print the text as it comes. Only one of both may be set. */
  stream: boolean;
  /** The weights of the answering process; with json, they are printed, too. */
  resident?: WeightFormReport;
}

/** A complete answer. */
export interface GenerationResult {
  started: Started;
  /** Log-probabilities of the prompt's tokens; empty if they were not requested. */
  promptLogprobs: PromptToken[];
  tokens: TokenReply[];
  finished: Finished;
}

/** Prints an answer on stdout as requested and returns it whole. Throws what the replies throw; with json, stdout then stays empty. */
export async function renderGeneration(
  replies: AsyncIterable<GenerateReply>,
  { json, stream, resident }: RenderOptions,
): Promise<GenerationResult> {
  let endsInNewline = true;
  const print = ({ text }: TokenReply): void => {
    if (!stream || text === '') return;
    standardOutput.writeAnswer(text);
    endsInNewline = text.endsWith('\n');
  };
  const result = await collectGeneration(replies, print).finally(() => {
    if (!endsInNewline) standardOutput.write('\n');
  });
  if (json) {
    const object = { ...generationJson(result), ...(resident && { resident: weightFormJson(resident) }) };
    standardOutput.write(`${printableJson(object)}\n`);
  }
  return result;
}

/** The whole answer; `onToken` is called as each token comes. Throws what the replies throw. */
export async function collectGeneration(
  replies: AsyncIterable<GenerateReply>,
  onToken: (token: TokenReply) => void,
): Promise<GenerationResult> {
  let started: Started | null = null;
  let finished: Finished | null = null;
  const promptLogprobs: PromptToken[] = [];
  const tokens: TokenReply[] = [];
  for await (const reply of replies) {
    switch (reply.kind) {
      case 'started':
        started = reply.started;
        break;
      case 'prompt':
        promptLogprobs.push(...reply.prompt.tokens);
        break;
      case 'token':
        tokens.push(reply.token);
        onToken(reply.token);
        break;
      case 'finished':
        finished = reply.finished;
    }
  }
  if (started === null || finished === null) {
    throw new OdmoeError('PROTOCOL_VIOLATION', 'the answer ended without its last message; ask again');
  }
  return { started, promptLogprobs, tokens, finished };
}

/** The object that --json prints for an answer. It has "logprobs" and "prompt_logprobs" only if they were requested. */
export function generationJson({
  started,
  promptLogprobs,
  tokens,
  finished,
}: GenerationResult): Record<string, unknown> {
  const { timing, sep } = finished;
  const logprobs = tokens.some((token) => token.top.length > 0) ? { logprobs: tokens.map(tokenLogprobsJson) } : {};
  return {
    text: finished.text,
    arithmetic: arithmeticName(started.arithmetic),
    prompt_token_ids: started.promptTokenIds,
    token_ids: tokens.map((token) => token.tokenId),
    finish_reason: finished.finishReason,
    ...logprobs,
    ...(promptLogprobs.length > 0 && { prompt_logprobs: promptLogprobsJson(started.promptTokenIds, promptLogprobs) }),
    seed: started.seed,
    timing: timing && {
      ttft_ms: microseconds(timing.ttftMs),
      tpot_ms: microseconds(timing.tpotMs),
      decode_tokens_per_s: microseconds(timing.decodeTokensPerS),
      output_tokens_per_s: microseconds(timing.outputTokensPerS),
      queued_ms: microseconds(timing.queuedMs),
      io_stall_ms: microseconds(timing.ioStallMs),
    },
    sep: sep && {
      recall: sep.recall,
      activated: sep.activated,
      predicted_correctly: sep.predictedCorrectly,
      late: sep.late,
      correct_by_iteration: sep.correctByIteration,
      activated_by_iteration: sep.activatedByIteration,
    },
    drafts: finished.drafts && { proposed: finished.drafts.proposed, accepted: finished.drafts.accepted },
    reloads: finished.reloads,
    cached_tokens: finished.cachedTokens,
    ...logicalCacheJson(finished),
    nodes: finished.nodes.map(nodeJson),
  };
}

/** Nothing for an answer without a logical cache. `miss_share` and `is_met` are null where no token was counted. */
function logicalCacheJson({ logicalCache }: Finished): Record<string, unknown> {
  if (logicalCache === undefined || logicalCache === null) return {};
  const { missShare, lever, isMet } = logicalCache;
  return { logical_cache: { miss_share: missShare, lever, is_met: missShare === null ? null : isMet } };
}

/** The forms of a model's weights, and the choice of --resident auto (null: a form was given). */
export interface WeightFormReport extends ResidentWeights {
  choice: WeightFormChoice | null;
}

function weightFormJson({ kinds, fellBack, choice }: WeightFormReport): Record<string, unknown> {
  const chosen = choice && { chosen: { format: choice.format, fixed4_speedup: choice.fixed4Speedup } };
  return { weights: kinds, fell_back: fellBack, ...chosen };
}

/** A line for people: the matrices' bytes by form. */
export function weightFormSummary({ kinds, fellBack, choice }: WeightFormReport): string {
  const parts = kinds.map(({ format, bytes }) => `${formatBytes(bytes)} as ${format}`).join(' and ');
  const weights = fellBack === 0 ? `weights: ${parts}` : `weights: ${parts} (${fellBack} matrices cannot be fixed4)`;
  const speedup = choice?.fixed4Speedup ?? null;
  return speedup === null ? weights : `${weights}; fixed4 is ${speedup.toFixed(2)} times as fast as bf16 here`;
}

/** A line for people: tokens, times, recall. */
export function generationSummary({ started, tokens, finished }: GenerationResult): string {
  const parts = [`${tokens.length} tokens (${finished.finishReason})`];
  const { arithmetic = '' } = started;
  const { cachedTokens } = finished;
  if (cachedTokens > 0) parts.push(`${cachedTokens} of ${started.promptTokenIds.length} prompt tokens were there`);
  if (finished.timing !== null) {
    parts.push(`first after ${finished.timing.ttftMs.toFixed(0)} ms`);
    if (finished.timing.decodeTokensPerS > 0) {
      parts.push(`then ${finished.timing.decodeTokensPerS.toFixed(1)} tokens/s`);
    }
  }
  if (finished.sep !== null) {
    const { recall, predictedCorrectly, activated } = finished.sep;
    parts.push(`experts predicted ${(recall * 100).toFixed(2)} % (${predictedCorrectly} of ${activated})`);
    parts.push(`${finished.reloads} reloads`);
  }
  if (finished.drafts !== null) {
    parts.push(`${finished.drafts.accepted} of ${finished.drafts.proposed} drafts accepted`);
  }
  if (!isExact(arithmetic)) parts.push(`computed as ${arithmetic}`);
  if (finished.logicalCache) parts.push(missText(finished.logicalCache));
  return parts.join(', ');
}

function tokenLogprobsJson({ tokenId, logprob, top }: Omit<TokenReply, 'text'>): unknown {
  return { token_id: tokenId, logprob, top: top.map(topLogprobJson) };
}

function topLogprobJson({ tokenId, logprob }: TokenLogprob): unknown {
  return { token_id: tokenId, logprob };
}

/** The first token has no log-probability, because no token stands before it. */
function promptLogprobsJson(promptIds: readonly number[], tokens: readonly PromptToken[]): unknown {
  return tokens.map(({ logprob, top }, index) => {
    const tokenId = promptIds[index] ?? 0;
    return index === 0 ? { token_id: tokenId, logprob: null, top: [] } : tokenLogprobsJson({ tokenId, logprob, top });
  });
}

/** Rounds milliseconds or rates to three decimals. */
function microseconds(value: number): number {
  return Math.round(value * 1000) / 1000;
}

function missText({ missShare, lever, isMet }: LogicalCacheMetrics): string {
  if (missShare === null) return `misses are not counted in the first ${FREE_STEPS} tokens`;
  const share = `misses ${(100 * missShare).toFixed(1)} % of the bytes of whole experts`;
  return `${share}${isMet ? '' : ', more than asked'} (lever: ${lever})`;
}
