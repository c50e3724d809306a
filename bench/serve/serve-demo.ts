import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { join } from 'node:path';
import { runtime, transport } from '../../cli/client/process-runtime.js';
import { DemoCluster } from '../../cli/demo/demo-cluster.js';
import { servingAt } from '../../cli/demo/serving.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type AnswerRecord, type ServeRow, serveRow } from './serve-figures.js';
import { plannedRequest, promptIdsOf } from './user-plan.js';
import { fetchStatus } from '../../shared/transport/node-clients.js';

export interface DemoServing {
  /** The path of a pack or a checkpoint; null: the demo model. */
  model: string | null;
  workers: number;
  shadow: 'none' | ShadowPrecision;
  /** Number of answers of each user. */
  answers: number;
  seed: number;
}

/** A turn of a conversation. Its prompt repeats all earlier turns. */
export interface ChatTurn {
  ttftMs: number;
  promptTokens: number;
  cachedTokens: number;
}

const START_TIMEOUT_MS = 60_000;
const STATUS_TIMEOUT_MS = 5_000;
/** Workers report their counters once a second. */
const COUNTERS_SETTLE_MS = 1_500;
const CHAT_ANSWER_TOKENS = 24;
const QUESTIONS = [
  'Tell me a story about a fox.',
  'What happens to the fox then?',
  'Who is with the fox?',
  'Where do they go?',
  'How does it end?',
];

/** The demo cluster, with its daemons as separate processes, used over HTTP. */
export class DemoService {
  private url = '';
  private model = '';
  private round = 0;

  private constructor(
    private readonly cluster: DemoCluster,
    private readonly serving: DemoServing,
    readonly batching: boolean,
  ) {}

  /** Throws like DemoCluster.start; after an error, no daemon runs. */
  static async start(serving: DemoServing, batching: boolean, signal: AbortSignal): Promise<DemoService> {
    const directory = serving.model ?? join(packageRoot(), 'models', 'demo');
    const packPath = await packForServing(directory, null, runtime, () => undefined, signal);
    const cluster = new DemoCluster({
      packPath,
      workers: serving.workers,
      shadow: serving.shadow,
      groupSize: 'auto',
      alignTokenPeriod: 1,
      alignKeyValuePeriod: 1,
      startTimeoutMs: START_TIMEOUT_MS,
      http: { host: '127.0.0.1', port: 0 },
      flags: { main: ['--batching', batching ? 'on' : 'off', '--draft-rows', '1'] },
    });
    const service = new DemoService(cluster, serving, batching);
    try {
      await cluster.start(signal);
      const { httpAddress, nodes } = await cluster.status();
      const main = nodes.find(({ identity }) => identity.role === 'ROLE_MAIN');
      service.model = main?.identity.modelName ?? '';
      service.url = servingAt(httpAddress, service.model, false).url;
      return service;
    } catch (thrown) {
      await cluster.stop();
      throw thrown;
    }
  }

  stop(): Promise<void> {
    return this.cluster.stop();
  }

  /** Runs `users` users; each sends a new request when the last one is answered. */
  async run(users: number, signal: AbortSignal): Promise<ServeRow> {
    const records: AnswerRecord[] = [];
    const before = await this.loads();
    // The prompts of a round differ from those of all other rounds, so that none was run before.
    const firstTurn = this.serving.answers * this.round++;
    const user = async (number: number): Promise<void> => {
      for (let turn = firstTurn; turn < firstTurn + this.serving.answers; turn += 1) {
        records.push({ user: number, ...(await this.complete(number, turn, signal)) });
      }
    };
    await Promise.all(Array.from({ length: users }, (_, number) => user(number)));
    const loads = (await this.loads()) - before;
    return serveRow({ users, batching: this.batching, loads }, records);
  }

  /** Runs a conversation of five turns. */
  async chat(signal: AbortSignal): Promise<ChatTurn[]> {
    const turns: ChatTurn[] = [];
    const messages: { role: string; content: string }[] = [];
    const number = this.round++;
    for (const question of QUESTIONS) {
      messages.push({ role: 'user', content: turns.length === 0 ? `${number}. ${question}` : question });
      const body = { messages, max_tokens: CHAT_ANSWER_TOKENS, stream_options: { include_usage: true } };
      const { askedMs, chunks } = await this.stream('/v1/chat/completions', body, signal);
      const texts = chunks.filter(({ chunk }) => contentOf(chunk) !== '');
      const usage = chunks
        .map(({ chunk }) => chunk.usage)
        .find((reported) => reported !== undefined && reported !== null);
      turns.push({
        ttftMs: (texts[0]?.atMs ?? askedMs) - askedMs,
        promptTokens: usage?.prompt_tokens ?? 0,
        cachedTokens: usage?.prompt_tokens_details?.cached_tokens ?? 0,
      });
      messages.push({ role: 'assistant', content: texts.map(({ chunk }) => contentOf(chunk)).join('') });
    }
    return turns;
  }

  private async complete(user: number, turn: number, signal: AbortSignal): Promise<Omit<AnswerRecord, 'user'>> {
    const { seed } = this.serving;
    const body = {
      prompt: promptIdsOf(seed, user, turn, PROMPT_VOCABULARY),
      max_tokens: plannedRequest(seed, user, turn).answerTokens,
      ignore_eos: true,
      logprobs: 1,
    };
    const { askedMs, chunks } = await this.stream('/v1/completions', body, signal);
    const tokenMs = chunks.flatMap(({ atMs, chunk }) => (chunk.choices?.[0]?.logprobs?.tokens ?? []).map(() => atMs));
    return { askedMs, tokenMs };
  }

  /** Number of loads of all workers so far. */
  private async loads(): Promise<number> {
    await runtime.sleep(COUNTERS_SETTLE_MS);
    const { nodes } = await fetchStatus(transport, this.cluster.mainAddress, STATUS_TIMEOUT_MS);
    return nodes.reduce((sum, node) => sum + node.loads, 0);
  }

  private async stream(
    path: string,
    body: object,
    signal: AbortSignal,
  ): Promise<{ askedMs: number; chunks: Arrived[] }> {
    const askedMs = runtime.nowMs();
    const response = await fetch(`${this.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: this.model, stream: true, temperature: 0, ...body }),
      signal,
    });
    if (!response.ok || response.body === null) {
      throw new OdmoeError('INTERNAL', `${path} answered ${response.status}: ${await response.text()}`);
    }
    const chunks: Arrived[] = [];
    const decoder = new TextDecoder();
    let unfinished = '';
    for await (const bytes of response.body) {
      unfinished += decoder.decode(bytes as Uint8Array, { stream: true });
      const lines = unfinished.split('\n');
      unfinished = lines.pop() ?? '';
      const atMs = runtime.nowMs();
      for (const line of lines) {
        if (line.startsWith('data: {')) chunks.push({ atMs, chunk: JSON.parse(line.slice('data: '.length)) as Chunk });
      }
    }
    return { askedMs, chunks };
  }
}

/** Limit for the ids of a prompt; every vocabulary has at least so many. */
const PROMPT_VOCABULARY = 256;

/** The fields of a chunk that are read. */
interface Chunk {
  choices?: { delta?: { content?: string | null }; logprobs?: { tokens?: string[] } | null }[];
  usage?: { prompt_tokens: number; prompt_tokens_details?: { cached_tokens: number } } | null;
}

interface Arrived {
  atMs: number;
  chunk: Chunk;
}

function contentOf({ choices }: Chunk): string {
  return choices?.[0]?.delta?.content ?? '';
}
