import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { odmoeCommand } from '../../cli/demo/daemon-process.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { LanHost } from './emulated-lan.js';

/** The result of one run of a system, in tokens per second. */
export interface Speeds {
  /** Null: the system does not report it. */
  prefillTokensPerS: number | null;
  decodeTokensPerS: number;
  /** Tokens that a pass of the answer yields; left out: the system does not report it. */
  tokensAPass?: number;
}

/** A process that must run before the measurement. */
export interface Server {
  /** Its name in messages. */
  program: string;
  host: LanHost;
  command: readonly string[];
  /** Null: the server is ready when it listens at its port. */
  ready: RegExp | null;
  port: number;
}

/** The processes of a system on the LAN. The first host gets the prompt, the others are its workers. */
export interface PeerSystem {
  name: string;
  servers: readonly Server[];
  /** Runs once the servers are ready. Its standard output has the figures. */
  measure: readonly string[];
  measureHost: LanHost;
  /** @throws USAGE if the output has no figures, or INTERNAL if it is odmoe's own output */
  parse: (output: string) => Speeds;
}

/** Formats in which distributed-llama sends data: f32 with f32 weights, q80 with q40 weights. */
export const DLLAMA_BUFFERS = ['f32', 'q80'] as const;
type DllamaBuffer = (typeof DLLAMA_BUFFERS)[number];

export interface Workload {
  promptTokens: number;
  answerTokens: number;
  /** Threads of each process. */
  threads: number;
}

/** The name of llama.cpp in the figures. */
export const LLAMA_RPC = 'llama.cpp RPC';

const ODMOE_PORT = 7600;
const LLAMA_PORT = 50_052;
const DLLAMA_PORT = 9_998;
/** More than any model of this comparison needs: every expert stays in the workers' caches, as the other systems hold every weight. */
const CACHE = '64 GiB';
const BUDGET = '65 GiB';

/** Token ids that are in the vocabulary of every model here. Their values do not change the amount of work. */
export function promptIds(count: number): number[] {
  return Array.from({ length: count }, (_, index) => 3 + ((index * 37) % 200));
}

/**
 * main on the first host, a worker on each other host. All experts stay in memory, so predictions have no use and there is no shadow. `drafts`: main drafts as it
 * does by default, from the text so far.
 */
export function odmoeSystem(
  packPath: string,
  hosts: readonly LanHost[],
  workload: Workload,
  drafts: boolean,
): PeerSystem {
  const first = firstOf(hosts);
  const others = hosts.slice(1);
  const threads = ['--threads', String(workload.threads)];
  // In plaintext, as the other systems speak: without it daemons refuse to listen beyond loopback.
  const common = ['--cluster', 'peers', '--model', packPath, '--port', String(ODMOE_PORT), '--insecure', ...threads];
  const address = `${first.address}:${ODMOE_PORT}`;
  const listen = (host: LanHost): string[] => ['--host', host.address, '--advertise-host', host.address];
  const main = ['--discovery', 'static', '--prediction', 'off', '--http', 'off', '--no-reuse-prefixes'];
  if (!drafts) main.push('--draft-rows', '1');
  const worker = ['--main', address, '--cache', CACHE, '--memory-budget', BUDGET];
  const question = [
    '--prompt-token-ids',
    promptIds(workload.promptTokens).join(','),
    '--ignore-eos',
    '--json',
    '--insecure',
  ];
  return {
    name: drafts ? 'odmoe with drafts' : 'odmoe',
    servers: [
      {
        program: 'main',
        host: first,
        port: ODMOE_PORT,
        ready: /listening on/,
        command: odmoeCommand(['main', '--id', 'main', ...common, ...listen(first), ...main]),
      },
      ...others.map((host, index) => ({
        program: `worker-${index + 1}`,
        host,
        port: ODMOE_PORT,
        ready: /listening on/,
        command: odmoeCommand(['worker', '--id', `worker-${index + 1}`, ...common, ...listen(host), ...worker]),
      })),
    ],
    measureHost: first,
    measure: odmoeCommand(['prompt', '--main', address, '--max-tokens', String(workload.answerTokens), ...question]),
    parse: (output) => parseOdmoe(output, workload),
  };
}

/** llama-bench with an rpc-server on each other host. The layers are divided among the servers. */
export function llamaSystem(
  binaries: string,
  ggufPath: string,
  hosts: readonly LanHost[],
  workload: Workload,
): PeerSystem {
  const others = hosts.slice(1);
  const threads = ['-t', String(workload.threads)];
  const servers = others.map((host) => ({
    program: 'rpc-server',
    host,
    port: LLAMA_PORT,
    ready: null,
    command: [rpcServer(binaries), '-H', host.address, '-p', String(LLAMA_PORT), ...threads],
  }));
  const addresses = others.map(({ address }) => `${address}:${LLAMA_PORT}`).join(',');
  const tokens = ['-p', String(workload.promptTokens), '-n', String(workload.answerTokens)];
  const measure = ['-m', ggufPath, '--rpc', addresses, '-ngl', '99', ...tokens, ...threads, '-r', '1', '-o', 'json'];
  return {
    name: LLAMA_RPC,
    servers,
    measureHost: firstOf(hosts),
    parse: parseLlamaBench,
    measure: [join(binaries, 'llama-bench'), ...measure],
  };
}

/** The path of rpc-server. Newer versions name it ggml-rpc-server. */
export function rpcServer(binaries: string): string {
  const newer = join(binaries, 'ggml-rpc-server');
  return existsSync(newer) ? newer : join(binaries, 'rpc-server');
}

/** `dllama inference` with workers on other hosts. The number of hosts is a power of two, because it accepts no other number. */
export function distributedLlamaSystem(
  binary: string,
  model: { path: string; tokenizerPath: string; buffer: DllamaBuffer },
  hosts: readonly LanHost[],
  workload: Workload,
): PeerSystem {
  const used = 2 ** Math.floor(Math.log2(hosts.length));
  const others = hosts.slice(1, used);
  const threads = ['--nthreads', String(workload.threads)];
  const servers = others.map((host) => ({
    program: 'dllama worker',
    host,
    port: DLLAMA_PORT,
    ready: null,
    command: [binary, 'worker', '--port', String(DLLAMA_PORT), ...threads],
  }));
  const prompt = Array.from({ length: workload.promptTokens }, () => 'a').join(' ');
  const steps = String(workload.promptTokens + workload.answerTokens);
  const files = ['--model', model.path, '--tokenizer', model.tokenizerPath, '--buffer-float-type', model.buffer];
  const workers = ['--workers', ...others.map(({ address }) => `${address}:${DLLAMA_PORT}`)];
  return {
    name: `distributed-llama on ${used} hosts`,
    servers,
    measureHost: firstOf(hosts),
    parse: parseDistributedLlama,
    measure: [binary, 'inference', ...files, '--prompt', prompt, '--steps', steps, ...threads, ...workers],
  };
}

interface PromptOutput {
  timing?: { ttft_ms?: number; decode_tokens_per_s?: number };
  drafts?: { accepted: number } | null;
}

/** Parses the object of `odmoe prompt --json`. The whole time to the first token counts as prefill. The first token comes from the prompt's pass. */
export function parseOdmoe(
  output: string,
  { promptTokens, answerTokens }: Pick<Workload, 'promptTokens' | 'answerTokens'>,
): Speeds {
  const { timing, drafts } = JSON.parse(output) as PromptOutput;
  if (timing?.ttft_ms === undefined || timing.decode_tokens_per_s === undefined) {
    throw new OdmoeError('INTERNAL', `odmoe prompt gave no figures; it printed: ${output.slice(-SHOWN_CHARACTERS)}`);
  }
  const decoded = answerTokens - 1;
  return {
    prefillTokensPerS: (promptTokens * 1000) / timing.ttft_ms,
    decodeTokensPerS: timing.decode_tokens_per_s,
    tokensAPass: decoded / (decoded - (drafts?.accepted ?? 0)),
  };
}

/**
 * Parses the list of `llama-bench -o json`: tests with n_prompt or n_gen, each with avg_ts and, in newer versions, n_depth.
 * @param depth positions before the first decoded token (-d); prefill is the test without any
 */
export function parseLlamaBench(output: string, depth = 0): Speeds {
  const tests = llamaTests(output);
  const decode = tests.find((test) => test.n_gen > 0 && (test.n_depth ?? 0) === depth)?.avg_ts;
  if (decode === undefined) throw noFigures('llama-bench', output);
  const prefill = tests.find(({ n_gen: generated, n_prompt: read }) => generated === 0 && read > 0)?.avg_ts;
  return { prefillTokensPerS: prefill ?? null, decodeTokensPerS: decode };
}

interface LlamaTest {
  n_prompt: number;
  n_gen: number;
  n_depth?: number;
  avg_ts: number;
}

function llamaTests(output: string): LlamaTest[] {
  try {
    return JSON.parse(output.slice(output.indexOf('['))) as LlamaTest[];
  } catch {
    throw noFigures('llama-bench', output);
  }
}

/** Parses the last lines of `dllama inference`: tokensPerSecond of "Evaluation", then of "Prediction". */
export function parseDistributedLlama(output: string): Speeds {
  const figureBehind = (title: string): number | null => {
    const section = output.slice(Math.max(0, output.lastIndexOf(`\n${title}`)));
    const figure = /tokens\/?s(?:econd)?:?\s+([\d.]+)/i.exec(section)?.[1];
    return figure === undefined ? null : Number(figure);
  };
  const decode = output.includes('\nPrediction') ? figureBehind('Prediction') : null;
  if (decode === null) throw noFigures('dllama', output);
  return {
    prefillTokensPerS: output.includes('\nEvaluation') ? figureBehind('Evaluation') : null,
    decodeTokensPerS: decode,
  };
}

function firstOf(hosts: readonly LanHost[]): LanHost {
  const [first] = hosts;
  if (first === undefined) throw new OdmoeError('INTERNAL', 'a comparison needs a first host');
  return first;
}

const SHOWN_CHARACTERS = 400;

function noFigures(program: string, output: string): OdmoeError {
  return new OdmoeError(
    'USAGE',
    `${program} gave no figures that odmoe can read: try it alone, or another version of it; it printed: ${output.slice(-SHOWN_CHARACTERS)}`,
  );
}
