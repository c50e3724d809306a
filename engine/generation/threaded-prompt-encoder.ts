import { Worker } from 'node:worker_threads';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { WaitRuntime } from '../../shared/base/runtime/peer-wait.js';
import { type QueueThread, type ThreadQueueWords, ThreadQueue } from '../threads/thread-queue.js';
import type { PromptEncoder, PromptRequest } from './prompt-encoder.js';
import type { PromptThreadData, ThreadPrompt } from './prompt-thread.js';

/**
 * Longest time for one prompt. The longest prompts that pass the check of their bytes take some tens of seconds. A prompt that takes this long
 * does not end, and would block all prompts behind it.
 */
export const PROMPT_LIMIT_MS = 300_000;
/** Heap limit of a thread: its tokenizer, and the longest prompt. */
const HEAP_LIMIT_MIB = 4096;

/**
 * Longest prompt of each lane, in characters; the last lane takes all. A prompt waits only for others of its lane: a megabyte takes a tokenizer
 * half a minute or more, and no short prompt should wait for it.
 */
export const LANE_LENGTHS = [64 * 1024, 512 * 1024, Infinity] as const;
/** A thread for long prompts ends after this time without work, because it holds its own tokenizer. */
export const LANE_IDLE_MS = 120_000;

export type PromptThread = QueueThread<ThreadPrompt, Uint32Array>;

const WORDS: ThreadQueueWords = {
  waiting: 'prompts wait to be made into tokens already',
  done: 'its prompt had become tokens',
  thread: 'the thread that makes tokens of prompts',
  late: () =>
    new OdmoeError('TIMEOUT', `the prompt had not become tokens after ${PROMPT_LIMIT_MS / 1000} s; shorten it`),
};

export interface ThreadedPromptEncoderOptions {
  /** Starts a thread that has the tokenizer (`startPromptThread`). */
  startThread: () => PromptThread;
  /** Prompts that may wait in a lane while another one is encoded. */
  queueLimit: number;
  runtime: WaitRuntime;
}

/** A thread with the tokenizer of that pack. */
export function startPromptThread(directory: string): PromptThread {
  const data: PromptThreadData = { directory };
  return new Worker(new URL('./prompt-thread.js', import.meta.url), {
    workerData: data,
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: HEAP_LIMIT_MIB },
  });
}

/**
 * Encodes prompts in separate threads, so that a long prompt delays no answer. Each lane has a thread and a queue. The shortest prompt goes
 * first, but none waits forever; the lanes of long prompts have a thread only while they have prompts. Beside the errors of PromptEncoder,
 * rejects with QUEUE_FULL, TIMEOUT, and INTERNAL when a thread dies.
 */
export class ThreadedPromptEncoder implements PromptEncoder {
  private readonly lanes: readonly ThreadQueue<ThreadPrompt, Uint32Array>[];

  constructor(private readonly options: ThreadedPromptEncoderOptions) {
    const { startThread, queueLimit, runtime } = options;
    const shared = { startThread, queueLimit, runtime, limitMs: PROMPT_LIMIT_MS, words: WORDS };
    // The first lane's tokenizer is read while the model is loaded.
    this.lanes = LANE_LENGTHS.map(
      (_, index) => new ThreadQueue({ ...shared, idleMs: index === 0 ? null : LANE_IDLE_MS }),
    );
  }

  async encode(request: PromptRequest, signal: AbortSignal): Promise<number[]> {
    if (request.promptTokenIds.length > 0) return [...request.promptTokenIds];
    const { text, messages, promptTokenIds, raw, templateArguments = [] } = request;
    const { continueLast = false, withoutSpecial = false } = request;
    const asked = { text, messages, promptTokenIds, raw, templateArguments, continueLast, withoutSpecial };
    const length = lengthOf(asked);
    const lane = this.lanes[LANE_LENGTHS.findIndex((mostLength) => length <= mostLength)];
    assertInvariant(lane !== undefined, `no lane takes a prompt of ${length} characters`);
    return [...(await lane.run({ asked, wallMs: this.options.runtime.wallMs() }, length, signal))];
  }

  async close(): Promise<void> {
    await Promise.all(this.lanes.map((lane) => lane.close()));
  }
}

/** Number of characters that go into the prompt. */
export function lengthOf({ text, messages, templateArguments = [] }: PromptRequest): number {
  let length = text.length;
  for (const { content, reasoningContent = '', toolCalls = [] } of messages) {
    length += content.length + reasoningContent.length;
    for (const call of toolCalls) length += call.arguments.length;
  }
  for (const { value } of templateArguments) length += value.length;
  return length;
}
