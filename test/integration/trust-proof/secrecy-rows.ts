/** Rows about the bytes that somebody on the way reads, and about an answer that goes on while a key is renewed or a worker is removed. */
import { METHODS } from '../../../shared/transport/methods.js';
import { generate } from '../../../shared/transport/node-clients.js';
import type { GrpcTransport } from '../../../shared/transport/grpc-transport.js';
import { packed, RecordingProxy } from '../../unit/recording-proxy.js';
import { plainRequest } from '../../unit/wire-messages.js';
import { RUNTIME, TRANSPORT } from '../../wall.js';
import { collect, type CollectedAnswer } from '../harness/answers.js';
import { waitUntil } from '../harness/wait-until.js';
import type { ProofCluster } from './proof-cluster.js';
import type { Row, Seen } from './row.js';

const PROMPT = 'Zebedee keeps 7391 violet umbrellas in the attic';
const REQUEST = plainRequest({ text: PROMPT, raw: true, ignoreEos: true, maxTokens: 24 });
/** So many tokens in a row are no accident. */
const RUN_TOKENS = 3;
/** Tokens of the demo model are one byte each as varints, so only a longer run is no accident. */
const VARINT_RUN_TOKENS = 8;

export const SECRECY_ROWS: readonly Row[] = [
  {
    done: 'somebody who records what passes between an operator, main and a worker during an answer',
    act: seenOnTheWay,
    here: /^saw \d{4,} bytes at main and \d{4,} at the worker, and in them: nothing$/,
    there: null,
    status: null,
  },
  {
    done: 'the same eyes at a main that speaks no TLS, which see the prompt',
    act: async (cluster) => {
      const { address } = cluster.daemon('plain');
      // It has no worker: the prompt is on the way, and the answer is an error.
      const eyes = new RecordingProxy(address);
      try {
        const asked = generate(TRANSPORT, await eyes.listen(), REQUEST, AbortSignal.timeout(2000));
        await collect(asked).catch(() => undefined);
        return { said: eyes.saw(Buffer.from(PROMPT)) ? 'the prompt' : 'nothing', status: null };
      } finally {
        eyes.close();
      }
    },
    here: /^the prompt$/,
    there: null,
    status: null,
  },
  {
    done: 'a worker whose key is renewed during an answer: its streams go on, and the answer is whole',
    act: renewedDuringAnswer,
    here: /^the same 24 tokens, and a new key$/,
    there: { of: 'elder', say: /renewed the key of this node; connections that stand go on/ },
    status: null,
  },
  {
    done: "a worker that is removed during an answer: main's open stream brings it nothing more, and the answer is whole",
    act: removedDuringAnswer,
    here: /^the same tokens, \d{4,} bytes until then; nothing more came$/,
    there: { of: 'silo', say: /node silo was removed from "home"/ },
    status: null,
  },
];

function ask(
  client: GrpcTransport,
  address: string,
  onToken?: (count: number) => void | Promise<void>,
): Promise<CollectedAnswer> {
  return collect(generate(client, address, REQUEST), onToken);
}

async function seenOnTheWay(cluster: ProofCluster): Promise<Seen> {
  const atMain = new RecordingProxy(cluster.main);
  const atWorker = cluster.eyes;
  try {
    const { started, tokens } = await ask(await cluster.clientOf('laptop'), await atMain.listen());
    const ids = [...started.promptTokenIds, ...tokens.map(({ tokenId }) => tokenId)];
    const runs = (length: number): number[][] =>
      ids.slice(0, ids.length - length + 1).map((_, at) => ids.slice(at, at + length));
    const words = PROMPT.split(' ').slice(0, 2).join(' ');
    const traces: [string, Buffer][] = [
      ['UTF-8', Buffer.from(words)],
      ['UTF-16', Buffer.from(words, 'utf16le')],
      ...runs(RUN_TOKENS).map((run): [string, Buffer] => [
        `numbers ${run.join(' ')}`,
        Buffer.from(Uint32Array.from(run).buffer),
      ]),
      ...runs(VARINT_RUN_TOKENS).map((run): [string, Buffer] => [`varints ${run.join(' ')}`, packed(run)]),
    ];
    const found = traces
      .filter(([, bytes]) => [atMain, atWorker].some((eyes) => eyes.saw(bytes)))
      .map(([form]) => form);
    const what = found.length === 0 ? 'nothing' : found.join(', ');
    const where = `saw ${atMain.seenBytes} bytes at main and ${atWorker.seenBytes} at the worker`;
    return { said: `${where}, and in them: ${what}`, status: null };
  } finally {
    atMain.close();
  }
}

/** The daemon renews its key by itself, a minute after its start, because its clock says that forty days have passed. */
async function renewedDuringAnswer(cluster: ProofCluster): Promise<Seen> {
  const operator = await cluster.clientOf('laptop');
  const expected = idsOf(await ask(operator, cluster.main));
  const elder = await cluster.joinDaemon('elder', [], cluster.clockShiftedBy(40 * DAY_MS));
  try {
    for (let answers = 1; ; answers += 1) {
      const answer = await ask(operator, cluster.main);
      if (idsOf(answer) !== expected) return { said: `other tokens in answer ${answers}`, status: null };
      const isRenewed = cluster.linesOf('elder').includes('renewed the key of this node');
      if (isRenewed) return { said: `the same ${answer.tokens.length} tokens, and a new key`, status: null };
    }
  } finally {
    await elder.end();
  }
}

/** A worker with work, which main reaches through a proxy, is removed while an answer goes on. */
async function removedDuringAnswer(cluster: ProofCluster): Promise<Seen> {
  const operator = await cluster.clientOf('laptop');
  const expected = idsOf(await ask(operator, cluster.main));
  const { flags, proxy } = await cluster.behindProxy('127.0.0.3');
  const silo = await cluster.joinDaemon('silo', flags, {});
  try {
    const takenMs: Promise<number>[] = [];
    const answer = await ask(operator, cluster.main, async (count) => {
      if (count !== 3) return;
      // Main knocks for a minute at the address of a worker that it has lost.
      proxy.takeNoMore();
      await cluster.asOperator(METHODS.operator.removeNode, { id: 'silo' });
      const removedMs = RUNTIME.nowMs();
      const ended = waitUntil('the connections of main and silo have ended', () => proxy.openSockets === 0);
      takenMs.push(ended.then(() => RUNTIME.nowMs() - removedMs));
    });
    process.stdout.write(`      main's stream to a removed worker ended ${await takenMs[0]} ms after the removal\n`);
    const atEnd = proxy.seenBytes;
    const after = idsOf(await ask(operator, cluster.main));
    const isSame = idsOf(answer) === expected && after === expected;
    const more = proxy.seenBytes === atEnd ? 'nothing more came' : `${proxy.seenBytes - atEnd} bytes more came`;
    return { said: `${isSame ? 'the same tokens' : 'other tokens'}, ${atEnd} bytes until then; ${more}`, status: null };
  } finally {
    await silo.end();
    proxy.close();
  }
}

function idsOf({ tokens }: CollectedAnswer): string {
  return tokens.map(({ tokenId }) => tokenId).join(' ');
}

const DAY_MS = 24 * 3_600_000;
