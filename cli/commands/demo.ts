import { Option, type Command } from 'commander';
import { join, resolve } from 'node:path';
import { exitWithParent } from '../../native/index.js';
import { randomApiKey } from '../../engine/trust/random-api-key.js';
import { AUTO_API_KEYS, KEYS_VARIABLE } from '../../shared/settings/api-keys.js';
import { LOCAL_MAIN_ADDRESS } from '../../engine/daemon/find-cluster.js';
import { requireFreePort } from '../../engine/daemon/require-free-port.js';
import { MOST_POSITIONS } from '../../engine/loading/served-shape.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { type HttpAddress, httpAddressFlag } from '../../shared/settings/http-address.js';
import { PRECISIONS } from '../../shared/settings/setting-choices.js';
import { MAX_DRAFT_ROWS } from '../../shared/settings/setting-limits.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { wholeNumberFlag, wholeNumberOrAutoFlag } from '../../shared/settings/whole-number-flag.js';

import type { GenerateRequest } from '../../shared/wire/messages.js';
import { DemoCluster, type DemoClusterOptions } from '../demo/demo-cluster.js';
import { allExpertsBytes, demoTable } from '../demo/demo-table.js';
import { servingAt, servingJson, servingLines } from '../demo/serving.js';
import {
  addGenerationFlags,
  generationRequestFrom,
  parseWhole,
  type GenerationFlags,
} from '../client/generation-flags.js';
import { withInterrupt } from '../client/interrupt.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { renderGeneration } from '../output/generation-output.js';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { runtime, transport } from '../client/process-runtime.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import { generate } from '../../shared/transport/node-clients.js';
import { parseAddress } from '../../shared/wire/addresses.js';

const DEFAULT_PROMPT = 'Tell me a story about a fox.';
const DEFAULT_WORKERS = 8;
const MOST_WORKERS = 64;
const MOST_GROUP_WORKERS = 1024;

/** Time after which the end of the demo reports what it waits for. */
const SAY_WAITING_MS = 2000;

/** Time in which the daemons must find each other, and the lowest speed at which a model loads. */
const START_TIMEOUT_MS = 60_000;
const SLOWEST_LOAD_BYTES_PER_S = 20e6;

interface DemoFlags extends GenerationFlags {
  workers: number;
  model: string;
  groupSize: number | 'auto';
  shadow: DemoClusterOptions['shadow'];
  alignToken: number;
  alignKv: number;
  optimistic?: boolean;
  draftRows: number | 'auto';
  serve?: boolean;
  http?: HttpAddress | 'off';
  context?: number;
  apiKeys?: string;
  exitWithParent?: boolean;
}

/** `odmoe demo`: runs a whole cluster on this machine, for one answer or for HTTP clients. */
export function registerDemoCommand(program: Command): void {
  const command = program
    .command('demo')
    .description(
      'start main, shadow and workers on this machine, answer a prompt, show how well it went, stop everything',
    )
    .argument('[text]', `the prompt (default: "${DEFAULT_PROMPT}"; with --serve none)`)
    .option('--serve', 'keep the cluster until Ctrl-C, for HTTP clients')
    .option(
      '--http <host:port>',
      'with --serve: where HTTP clients are served (default: 127.0.0.1:7680, or a free port where that is taken)',
      httpAddressFlag,
    )
    .option(
      '--api-keys <file|auto>',
      'with --serve: API keys of HTTP clients, one a line; auto: one for this demo, with the link of the page',
    )
    .option(
      '--context <positions>',
      "with --serve: prompt and answer together, also past what the model was made for (default: the model's own limit)",
      wholeNumberFlag(1, MOST_POSITIONS),
    )
    .addOption(new Option('--exit-with-parent', 'stop when the starting process dies').hideHelp());
  addClusterFlags(command);
  addGenerationFlags(command)
    .addHelpText('after', HELP)
    .action(async (text: string | undefined, flags: DemoFlags) => demo(text, flags));
}

const HELP = `
Each daemon is a process of its own, as it would be on a machine of its own; they talk over loopback. None of them is
left when the command ends, however it ends.
With --serve the URL and commands to try are printed (with --json an object with "url", "model" and "main"), after the answer where a prompt is given.
Examples:
  odmoe demo
  odmoe demo "What is 17 plus 25?" --workers 3
  odmoe demo --serve
  odmoe demo --serve --context 65536
  odmoe demo --shadow nf4 --align-token 4 --align-kv 4
  odmoe demo --optimistic --draft-rows auto
  odmoe demo --shadow none
  odmoe demo --model ~/mixtral-pack --workers 4 --max-tokens 32 --json`;

/** Adds the flags that describe the cluster. */
function addClusterFlags(command: Command): void {
  command
    .option('--workers <n>', 'worker daemons', wholeNumberFlag(1, MOST_WORKERS), DEFAULT_WORKERS)
    .addOption(
      new Option('--model <directory>', 'a pack or a checkpoint').default(
        join(packageRoot(), 'models', 'demo'),
        'the demo model',
      ),
    )
    .option(
      '--group-size <n>',
      'workers that serve a layer; auto: as many as it activates experts',
      wholeNumberOrAutoFlag(1, MOST_GROUP_WORKERS),
      'auto',
    )
    .addOption(
      new Option('--shadow <precision>', 'how the shadow is quantized; none: no predictions')
        .choices(['none', ...PRECISIONS])
        .default('int8'),
    )
    .option('--align-token <n>', "iterations between alignments with main's tokens (0: never)", parseWhole, 1)
    .option('--align-kv <n>', "iterations between alignments with main's keys and values (0: never)", parseWhole, 1)
    .option('--optimistic', "the shadow goes on from its own guess before main's token is there")
    .option(
      '--draft-rows <n>',
      "positions that main runs in one pass, the shadow's drafts among them; auto",
      wholeNumberOrAutoFlag(1, MAX_DRAFT_ROWS),
      1,
    );
}

async function demo(text: string | undefined, flags: DemoFlags): Promise<void> {
  if (flags.exitWithParent === true) exitWithParent();
  requireServe(flags);
  const isAsked = text !== undefined || flags.promptTokenIds !== undefined || flags.serve !== true;
  const prompt = text ?? (flags.promptTokenIds === undefined ? DEFAULT_PROMPT : undefined);
  const request = generationRequestFrom(flags, prompt);
  const key = flags.apiKeys === AUTO_API_KEYS ? takeOwnKey() : null;
  await withInterrupt(async (signal) => {
    const packPath = await servedPack(flags.model, signal);
    const expertsBytes = allExpertsBytes(await openModelSource(packPath));
    const mainPort = flags.serve === true ? await usualPort() : 0;
    const cluster = new DemoCluster(clusterOptions(packPath, expertsBytes, mainPort, flags));
    try {
      await start(cluster, flags, signal);
      if (isAsked) await answer(cluster, request, { flags, prompt, expertsBytes }, signal);
      if (flags.serve === true) await serve(cluster, flags, key, signal);
    } finally {
      const patience = runtime.after(SAY_WAITING_MS, () =>
        standardError.write('odmoe: main ends the answers under way; Ctrl-C again ends everything at once\n'),
      );
      await cluster.stop();
      patience.cancel();
    }
  });
}

/** Makes a key for this demo alone. Main takes it from the environment, so that it stands in no list of processes and in no file. */
function takeOwnKey(): string {
  const key = randomApiKey(runtime);
  const others = process.env[KEYS_VARIABLE];
  process.env[KEYS_VARIABLE] = others === undefined || others === '' ? key : `${others},${key}`;
  return key;
}

function requireServe({ serve, http, apiKeys, context }: DemoFlags): void {
  const forServing = { '--http': http, '--api-keys': apiKeys, '--context': context };
  const given = Object.entries(forServing).find(([, value]) => value !== undefined);
  if (serve !== true && given !== undefined) {
    throw new OdmoeError('USAGE', `${given[0]} needs --serve: a demo serves no HTTP clients without`);
  }
  if (http === 'off') {
    throw new OdmoeError('USAGE', '--serve is for HTTP clients: give --http an address, or leave it out');
  }
}

/** The port at which commands look for a main of this machine; 0, which is any free one, where another program has it. */
async function usualPort(): Promise<number> {
  const { host, port } = parseAddress(LOCAL_MAIN_ADDRESS);
  return requireFreePort(host, port).then(
    () => port,
    () => 0,
  );
}

function clusterOptions(
  packPath: string,
  expertsBytes: number,
  mainPort: number,
  flags: DemoFlags,
): DemoClusterOptions {
  const ofMain = ['--draft-rows', String(flags.draftRows)];
  if (flags.draftRows === 'auto' && flags.shadow !== 'none') ofMain.push('--draft-source', 'shadow');
  if (flags.optimistic === true) ofMain.push('--optimistic');
  if (flags.apiKeys !== undefined && flags.apiKeys !== AUTO_API_KEYS) ofMain.push('--api-keys', resolve(flags.apiKeys));
  const ofBoth = flags.context === undefined ? [] : ['--max-context', String(flags.context)];
  return {
    packPath,
    mainPort,
    workers: flags.workers,
    shadow: flags.shadow,
    groupSize: flags.groupSize,
    alignTokenPeriod: flags.alignToken,
    alignKeyValuePeriod: flags.alignKv,
    ...(flags.serve === true && {
      http: flags.http ?? null,
      // For example: the default port was taken, or other users can read the keys.
      onMainLine: (line: string) => standardError.write(`${line}\n`),
    }),
    flags: { main: [...ofMain, ...ofBoth], shadow: ofBoth },
    startTimeoutMs: START_TIMEOUT_MS + Math.ceil((1000 * expertsBytes) / SLOWEST_LOAD_BYTES_PER_S),
  };
}

async function start(cluster: DemoCluster, { json, shadow, workers }: DemoFlags, signal: AbortSignal): Promise<void> {
  const withShadow = shadow === 'none' ? 'no shadow' : `a shadow (${shadow})`;
  if (!json) standardError.write(`starting main, ${withShadow} and ${workers} workers on this machine\n`);
  await cluster.start(signal);
}

async function answer(
  cluster: DemoCluster,
  request: GenerateRequest,
  shown: { flags: DemoFlags; prompt: string | undefined; expertsBytes: number },
  signal: AbortSignal,
): Promise<void> {
  const { json } = shown.flags;
  if (!json && shown.prompt !== undefined) standardOutput.write(`\n> ${shown.prompt}\n\n`);
  const replies = generate(transport, cluster.mainAddress, request, signal);
  const { finished } = await cluster.whileMainRuns(renderGeneration(replies, { json, stream: !json }));
  if (!json) standardOutput.write(`\n${demoTable(finished, shown.expertsBytes)}`);
}

/**
 * Serves until the signal aborts, which is the normal end. Throws main's failure. The failure of another daemon is reported, and serving continues.
 */
async function serve(
  cluster: DemoCluster,
  { json, apiKeys }: DemoFlags,
  key: string | null,
  signal: AbortSignal,
): Promise<void> {
  const { httpAddress, nodes } = await cluster.whileMainRuns(cluster.status());
  const model = nodes.find(({ identity }) => identity.role === 'ROLE_MAIN')?.identity.modelName ?? '';
  const needsKey = apiKeys !== undefined || (process.env[KEYS_VARIABLE] ?? '') !== '';
  const serving = { ...servingAt(httpAddress, model, needsKey), key };
  const { mainAddress } = cluster;
  const text = json ? printableJson(servingJson(serving, mainAddress)) : servingLines(serving, mainAddress).join('\n');
  standardOutput.write(`${text}\n`);
  cluster.watchPeers(({ message, code }) => standardError.write(`odmoe: ${message} [${code}]; the others go on\n`));
  const ended = new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    onAbort(signal, resolve);
  });
  await cluster.whileMainRuns(ended);
}

/** The pack to serve: the given one, or one made from the given checkpoint and stored for later runs. */
async function servedPack(directory: string, signal: AbortSignal): Promise<string> {
  const bar = createProgressBar('packing the model');
  try {
    const warn = (warning: string): void => void standardError.write(`odmoe: ${warning}\n`);
    return await packForServing(directory, null, runtime, bar.update, signal, warn);
  } finally {
    bar.stop();
  }
}
