import { type GenerationWatch, NOBODY_WATCHES } from '../../http-api/delivery/generation-watch.js';
import { setMaxListeners } from 'node:events';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { isExact } from '../../shared/settings/quality.js';
import { mostActiveSequences } from '../../shared/settings/setting-limits.js';
import { generateTokens, type GenerationOutcome } from '../../engine/generation/generate-tokens.js';
import type { FormatCompiler } from '../../engine/sampling/format-compiler.js';
import { OutputFormats } from '../../engine/sampling/output-formats.js';
import { type ResolvedGeneration, resolveGeneration } from '../../engine/generation/resolve-generation.js';
import {
  type ContextLimit,
  type PromptEncoder,
  type PromptRequest,
  requireEncodable,
} from '../../engine/generation/prompt-encoder.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { GenerateReply, GenerateRequest, NodeStatus, Timing } from '../../shared/wire/messages.js';
import { timeForPeers } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { ClusterEngine } from '../decode/cluster-engine.js';
import { ClusterSequence } from '../decode/cluster-sequence.js';
import type { ForcedAnswer } from '../decode/forced-source.js';
import { AdmissionQueue } from './admission-queue.js';
import { ObservedRequest, type RequestObserver } from './request-observer.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** Most bytes of a text that is no prompt and is tokenized although the context may not hold it. */
export const TOKENIZED_TEXT_LIMIT_BYTES = 1024 * 1024;

/** Most characters of an expected text that are looked at: the rest makes no drafts. */
const EXPECTED_TEXT_LIMIT = 65_536;

export interface InferenceOptions {
  engine: ClusterEngine;
  /** null: the model has none; prompts then come as token ids. */
  tokenizer: Tokenizer | null;
  prompts: PromptEncoder;
  /** null: output formats are compiled in this process, when a request names them. */
  formats: FormatCompiler | null;
  eosTokenIds: readonly number[];
  limits: NodeSettings['main'];
  /** How answers are computed: "exact", "fast" or a sliced quality. */
  arithmetic: string;
  /** Returns a sequence id that was not used before, by an earlier start of main either. */
  nextSequence: () => number;
  nodeStatuses: () => NodeStatus[];
  observer: RequestObserver;
  runtime: Runtime;
  /** Returns a seed for a request that names none. */
  randomSeed: () => number;
  /** Main's own device does not work any more: no request can be answered. */
  onDeviceLost: (error: OdmoeError) => void;
}

/** Inference.Generate: checks and queues requests, and makes their answers. The rows of all answers share passes (batching/pass-loop.ts). */
export class InferenceService {
  private readonly admission: AdmissionQueue;
  private readonly running = new Set<{ abort: AbortController; ended: Promise<void> }>();
  private readonly sequences = new Set<ClusterSequence>();
  private readonly formats: OutputFormats;
  private requestCount = 0;
  private tokenCount = 0;
  /** Signals of clients whose requests have begun: if one request has several answers, its later ones are not refused. */
  private readonly begun = new WeakSet<AbortSignal>();
  /** The reason why no request is taken any more; null: requests are taken. */
  private refusal: OdmoeError | null = null;
  /** The reason why running requests are ended; null: they are not. */
  private ending: OdmoeError | null = null;
  private deviceLost: OdmoeError | null = null;

  constructor(private readonly options: InferenceOptions) {
    this.admission = new AdmissionQueue(
      mostActiveSequences(options.limits.maxActiveSequences),
      options.limits.maxQueuedRequests,
      // An operator who sets a number wants so many at once, and accepts that some of them are preempted if memory is short.
      (promptTokens) => options.limits.maxActiveSequences !== 'auto' || options.engine.room.admits(promptTokens),
    );
    const { tokenizer, engine, eosTokenIds } = options;
    this.formats = new OutputFormats(tokenizer, engine.shape.vocabSize, eosTokenIds, options.formats);
    this.formats.prepare();
  }

  counts(): { activeSequences: number; queuedRequests: number; requests: number; tokens: number } {
    const { active, queued } = this.admission;
    return { activeSequences: active, queuedRequests: queued, requests: this.requestCount, tokens: this.tokenCount };
  }

  /** Number of requests that have not ended, whatever they wait for. */
  get openCount(): number {
    return this.running.size;
  }

  /** Number of shadow's predictions and drafts for positions that main has not come to, over all answers in the making. */
  get remembered(): { rememberedPredictions: number; rememberedDrafts: number } {
    let [rememberedPredictions, rememberedDrafts] = [0, 0];
    for (const { remembered } of this.sequences) {
      rememberedPredictions += remembered.predictions;
      rememberedDrafts += remembered.drafts;
    }
    return { rememberedPredictions, rememberedDrafts };
  }

  /** Most positions of prompt and answer together. */
  get contextPositions(): number {
    return contextPositionsOf(this.options.limits, this.options.engine.shape);
  }

  private get contextLimit(): ContextLimit {
    return { maxPositions: this.contextPositions, toRaise: TO_RAISE_CONTEXT };
  }

  /** All that a request holds is freed when the loop over the replies ends, however it ends. */
  async *generate(
    request: GenerateRequest,
    clientGone: AbortSignal,
    watch: GenerationWatch = NOBODY_WATCHES,
  ): AsyncGenerator<GenerateReply, void, undefined> {
    const refusal = this.refusalOf(clientGone);
    if (refusal !== null) throw refusal;
    requireArithmetic(request, this.options.arithmetic);
    this.begun.add(clientGone);
    const observed = new ObservedRequest(this.options.observer, () => this.options.runtime.nowMs());
    const abort = new AbortController();
    // While no worker is left, every batch of a prefill waits on this signal.
    setMaxListeners(0, abort.signal);
    const onGone = (): void => {
      abort.abort();
    };
    const leaveClient = onAbort(clientGone, onGone);
    if (clientGone.aborted) onGone();
    let markEnded: () => void = () => undefined;
    const entry = { abort, ended: new Promise<void>((resolve) => (markEnded = resolve)) };
    this.running.add(entry);
    try {
      const [asked, expectedIds] = await Promise.all([
        this.resolve(request, abort.signal),
        this.expectedIds(request, abort.signal),
      ]);
      const resolved = this.fitted(asked);
      this.requestCount += 1;
      const { length: promptTokens } = resolved.promptIds;
      await this.admission.enter(watch.client, abort.signal, (before) => watch.queued(before), promptTokens);
      try {
        observed.admitted(promptTokens);
        yield* this.answer({ ...resolved, expectedIds }, { observed, watch }, abort.signal);
        observed.succeeded();
      } finally {
        this.admission.leave(watch.client);
      }
    } catch (thrown) {
      const error = toOdmoeError(thrown);
      if (error.code === 'DEVICE_LOST') this.loseDevice(error);
      const cause = this.deviceLost ?? this.ending ?? error;
      observed.failed(cause.code);
      throw cause === error ? thrown : cause;
    } finally {
      observed.ended();
      leaveClient();
      this.running.delete(entry);
      markEnded();
    }
  }

  /** The reason why no client is served any more; null: clients are served. */
  get trouble(): OdmoeError | null {
    return this.deviceLost ?? this.refusal;
  }

  /**
   * Token ids of a text, computed where those of prompts are. Texts up to TOKENIZED_TEXT_LIMIT_BYTES are taken whatever the context; longer ones only
   * if the context may hold them. `addSpecial`: with a leading BOS and the like. Rejects as PromptEncoder does.
   */
  tokenize(text: string, addSpecial: boolean, signal: AbortSignal): Promise<number[]> {
    const request = { ...NO_PROMPT, text, raw: true, withoutSpecial: !addSpecial };
    if (Buffer.byteLength(text) > TOKENIZED_TEXT_LIMIT_BYTES) return this.encode(request, signal);
    return this.options.prompts.encode(request, signal);
  }

  /** Token ids of messages, after the chat template. */
  tokenizeChat(
    request: Pick<GenerateRequest, 'messages' | 'templateArguments' | 'continueLast'>,
    signal: AbortSignal,
  ): Promise<number[]> {
    return this.encode({ ...NO_PROMPT, ...request }, signal);
  }

  private encode(request: PromptRequest, signal: AbortSignal): Promise<number[]> {
    const { tokenizer, prompts } = this.options;
    if (tokenizer !== null) requireEncodable(request, tokenizer, this.contextLimit);
    return prompts.encode(request, signal);
  }

  /**
   * Takes no more requests. Requests that were taken, including queued ones, go on. Resolves when all have ended, after graceMs, or when the signal
   * aborts. Then stop() ends the remaining requests, and their error names the reason.
   */
  async drain(graceMs: number, cut: AbortSignal): Promise<void> {
    this.refusal ??= stoppingError('it takes no new requests');
    const over = new AbortController();
    const giveUp = (): void => over.abort();
    const leave = onAbort(cut, giveUp);
    if (cut.aborted) giveUp();
    try {
      await Promise.race([this.quiet(over.signal), timeForPeers(this.options.runtime, graceMs, over.signal)]);
    } finally {
      giveUp();
      leave();
    }
    if (this.running.size > 0 && !cut.aborted) {
      this.ending = stoppingError(`the answer was not finished within the ${graceMs} ms of main.stop_grace_ms`);
    }
  }

  /** Resolves when no request is under way. */
  private async quiet(over: AbortSignal): Promise<void> {
    while (this.running.size > 0 && !over.aborted) {
      await Promise.all([...this.running].map((entry) => entry.ended));
      // A request for many answers begins its next ones now.
      await this.options.runtime.sleep(0);
    }
  }

  /** The reason why the client gets no answer, or no further one; null: it gets one. */
  private refusalOf(client: AbortSignal): OdmoeError | null {
    return this.deviceLost ?? this.ending ?? (this.begun.has(client) ? null : this.refusal);
  }

  /** Ends running and waiting requests, and resolves when all of them are freed. */
  async stop(): Promise<void> {
    this.refusal ??= stoppingError('it takes no new requests');
    this.ending ??= stoppingError('the answer was ended');
    const ended = [...this.running].map((entry) => entry.ended);
    for (const { abort } of this.running) abort.abort();
    await Promise.all(ended);
  }

  /** Handles the loss of main's own device; that of a worker comes as WORKER_LOST. */
  private loseDevice(error: OdmoeError): void {
    if (this.deviceLost !== null) return;
    this.deviceLost = error;
    // The request that met the loss is answered first.
    this.options.runtime.nextTurn(() => {
      this.options.onDeviceLost(error);
    });
  }

  private resolve(request: GenerateRequest, signal: AbortSignal): Promise<ResolvedGeneration> {
    const { engine, tokenizer, prompts, eosTokenIds, randomSeed: chooseSeed } = this.options;
    const limits = { vocabSize: engine.shape.vocabSize, ...this.contextLimit, eosTokenIds };
    return resolveGeneration(request, { tokenizer, prompts, formats: this.formats, limits, chooseSeed }, signal);
  }

  /** Tokens of the text that the client expects in the answer; none where main does not draft, or cannot tokenize it now: the text is a hint. */
  private async expectedIds({ expectedText = '' }: GenerateRequest, signal: AbortSignal): Promise<readonly number[]> {
    const { engine, tokenizer } = this.options;
    if (expectedText === '' || tokenizer === null || engine.drafting.ownRows === 1) return [];
    try {
      return await this.tokenize(expectedText.slice(0, EXPECTED_TEXT_LIMIT), false, signal);
    } catch (thrown) {
      this.options.engine.log.debug('the text that a client expects is not used for drafts', {
        code: toOdmoeError(thrown).code,
      });
      return [];
    }
  }

  /** A request for all positions of the context gets as many of them as memory has room for. @throws DEVICE_OUT_OF_MEMORY */
  private fitted({ promptIds, options }: ResolvedGeneration): ResolvedGeneration {
    const { room } = this.options.engine;
    const positions = promptIds.length + options.maxTokens;
    const isOpenEnded = positions === this.contextPositions && promptIds.length < room.mostPositions;
    const fitting = isOpenEnded ? Math.min(positions, room.mostPositions) : positions;
    room.requireFits(fitting);
    return { promptIds, options: { ...options, maxTokens: fitting - promptIds.length } };
  }

  private async *answer(
    { promptIds, options, expectedIds }: ResolvedGeneration & { expectedIds: readonly number[] },
    { observed, watch }: { observed: ObservedRequest; watch: GenerationWatch },
    signal: AbortSignal,
  ): AsyncGenerator<GenerateReply, void, undefined> {
    const { engine, tokenizer, arithmetic } = this.options;
    const { sampling } = options;
    const { seed } = sampling;
    yield { kind: 'started', started: { promptTokenIds: promptIds, seed, ...statedArithmetic(arithmetic) } };
    const maxPositions = promptIds.length + options.maxTokens;
    const request = {
      id: this.options.nextSequence(),
      client: watch.client,
      promptTokens: promptIds.length,
      maxPositions,
      sampling,
      forced: forcedAnswer(promptIds.length, options),
      expectedIds,
      onPrefill: (doneTokens: number) => watch.prefill(doneTokens, promptIds.length),
    };
    const sequence = new ClusterSequence(engine, request, signal);
    this.sequences.add(sequence);
    observed.answering(sequence);
    try {
      const steps = generateTokens(sequence, promptIds, options, tokenizer, signal, engine.runtime);
      let next = await steps.next();
      for (; next.done !== true; next = await steps.next()) {
        if (next.value.kind === 'token') {
          observed.token();
          watch.token();
          this.tokenCount += 1;
        }
        yield next.value;
      }
      yield this.finished(sequence, next.value, observed.timing.result());
    } finally {
      await sequence.end();
      this.sequences.delete(sequence);
      observed.answered(sequence);
    }
  }

  private finished(sequence: ClusterSequence, outcome: GenerationOutcome, timing: Timing): GenerateReply {
    return {
      kind: 'finished',
      finished: {
        finishReason: outcome.finishReason,
        stopString: outcome.stopString,
        text: outcome.text,
        timing: { ...timing, ioStallMs: sequence.counters.ioStallUs / 1000 },
        sep: sequence.sepMetrics(),
        reloads: sequence.counters.reloads,
        nodes: this.options.nodeStatuses(),
        drafts: sequence.draftMetrics(),
        logicalCache: sequence.decisions?.report ?? null,
        cachedTokens: sequence.cost().cachedTokens,
      },
    };
  }
}

function forcedAnswer(promptTokens: number, options: ResolvedGeneration['options']): ForcedAnswer | null {
  const { constraint, maxTokens, eosTokenIds: endTokenIds } = options;
  if (constraint === null) return null;
  return { constraint, promptTokens, maxPositions: promptTokens + maxTokens, endTokenIds };
}

/** The arithmetic in a message to clients. Those of release 0.2 cannot skip a text that they do not know, not even an empty one: what is usual is left out. */
export function statedArithmetic(arithmetic: string): { arithmetic?: string } {
  return isExact(arithmetic) ? {} : { arithmetic };
}

/** @throws REQUEST_INVALID if the request wants another arithmetic */
function requireArithmetic({ arithmetic: wanted = '' }: GenerateRequest, arithmetic: string): void {
  if (wanted === '' || wanted === arithmetic) return;
  throw new OdmoeError(
    'REQUEST_INVALID',
    `arithmetic: the request wants ${JSON.stringify(wanted)}, and this main computes answers as "${arithmetic}": ask without it, or ask a main ` +
      'that computes so',
  );
}

const TO_RAISE_CONTEXT =
  'start main with a longer context, which may go past what the model was made for (main.max_context_positions, --max-context; odmoe demo: --context)';

/** Most positions of prompt and answer together. The setting may go past the model's own. */
export function contextPositionsOf(
  { maxContextPositions }: Pick<NodeSettings['main'], 'maxContextPositions'>,
  { maxPositions }: Pick<ModelShape, 'maxPositions'>,
): number {
  return maxContextPositions === 0 ? maxPositions : maxContextPositions;
}

const NO_PROMPT: PromptRequest = { text: '', messages: [], promptTokenIds: [], raw: false };

function stoppingError(what: string): OdmoeError {
  return new OdmoeError('NO_MAIN', `main is being stopped: ${what}; ask again when it is back`);
}
