import { Worker } from 'node:worker_threads';
import { assertInvariant } from '../../shared/errors/assert-invariant.js';
import type { PromptEncoder, PromptRequest } from './prompt-encoder.js';
import { cancelled, PromptLane, type PromptLaneOptions, type PromptThread } from './prompt-lane.js';
import type { PromptThreadData } from './prompt-thread.js';

/** Heap of a thread: its tokenizer, and the longest prompt. */
const HEAP_LIMIT_MIB = 4096;

/**
 * Characters of the longest prompt of each lane; the last one takes all. A prompt waits for others of its own lane only: a megabyte takes a
 * tokenizer half a minute and more, and no short prompt stands behind it.
 */
export const LANE_LENGTHS = [64 * 1024, 512 * 1024, Infinity] as const;
/** How long the thread of a lane for long prompts is kept without work. It holds a tokenizer of its own. */
export const LANE_IDLE_MS = 120_000;

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
 * Encodes prompts in threads of their own, so that a long one holds up no answer. Each lane has a thread, and a queue in which the shortest goes
 * first, though none waits for ever; the lanes of long prompts have a thread only while there are some. Beside what PromptEncoder names, rejects
 * with QUEUE_FULL, TIMEOUT, and INTERNAL when a thread dies.
 */
export class ThreadedPromptEncoder implements PromptEncoder {
  private readonly lanes: readonly PromptLane[];

  /** `queueLimit`: of each lane. */
  constructor(options: Omit<PromptLaneOptions, 'idleMs'>) {
    this.lanes = LANE_LENGTHS.map(
      (_, index) => new PromptLane({ ...options, idleMs: index === 0 ? null : LANE_IDLE_MS }),
    );
  }

  async encode(request: PromptRequest, signal: AbortSignal): Promise<number[]> {
    if (request.promptTokenIds.length > 0) return [...request.promptTokenIds];
    if (signal.aborted) throw cancelled();
    const { text, messages, promptTokenIds, raw, templateArguments = [] } = request;
    const { continueLast = false, withoutSpecial = false } = request;
    const asked = { text, messages, promptTokenIds, raw, templateArguments, continueLast, withoutSpecial };
    const length = lengthOf(asked);
    const lane = this.lanes[LANE_LENGTHS.findIndex((mostLength) => length <= mostLength)];
    assertInvariant(lane !== undefined, `no lane takes a prompt of ${length} characters`);
    return lane.encode(asked, length, signal);
  }

  async close(): Promise<void> {
    await Promise.all(this.lanes.map((lane) => lane.close()));
  }
}

/** Characters that go into the prompt. */
export function lengthOf({ text, messages, templateArguments = [] }: PromptRequest): number {
  let length = text.length;
  for (const { content, reasoningContent = '', toolCalls = [] } of messages) {
    length += content.length + reasoningContent.length;
    for (const call of toolCalls) length += call.arguments.length;
  }
  for (const { value } of templateArguments) length += value.length;
  return length;
}
