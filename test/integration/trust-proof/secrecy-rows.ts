/** Rows about the bytes that somebody on the way reads, and about an answer that goes on while a key is renewed. */
import { createPublicKey } from 'node:crypto';
import { createNodeKey, spkiOf } from '../../../shared/transport/trust/certificate.js';
import { proveNextKey } from '../../../engine/trust/key-proof.js';
import { generate, renewKey } from '../../../shared/transport/node-clients.js';
import type { GrpcTransport } from '../../../shared/transport/grpc-transport.js';
import { packed, RecordingProxy } from '../../unit/recording-proxy.js';
import { plainRequest } from '../../unit/wire-messages.js';
import { TRANSPORT } from '../../wall.js';
import { collect, type CollectedAnswer } from '../harness/answers.js';
import { CALL_TIMEOUT_MS, type ProofCluster } from './proof-cluster.js';
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
    here: /^the same 24 tokens, renewed after \d+ of them$/,
    there: null,
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

async function renewedDuringAnswer(cluster: ProofCluster): Promise<Seen> {
  const operator = await cluster.clientOf('laptop');
  const expected = await ask(operator, cluster.main);
  const worker = await cluster.clientOf('jetson');
  const next = createNodeKey();
  const request = { spki: spkiOf(createPublicKey(next)), proof: proveNextKey(next, 'jetson') };
  let renewedAfter = 0;
  const answer = await ask(operator, cluster.main, async (count) => {
    if (count !== 3) return;
    await renewKey(worker, cluster.main, request, { timeoutMs: CALL_TIMEOUT_MS });
    renewedAfter = count;
  });
  const ids = ({ tokens }: CollectedAnswer): string => tokens.map(({ tokenId }) => tokenId).join(' ');
  const same = ids(answer) === ids(expected) ? 'the same' : 'other';
  return { said: `${same} ${answer.tokens.length} tokens, renewed after ${renewedAfter} of them`, status: null };
}
