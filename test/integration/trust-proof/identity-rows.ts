/** Certificates that are missing, of somebody else, removed, or of a role that may not ask. */
import { identifyPeer, joinMain, openWorkerStream } from '../../../shared/transport/node-clients.js';
import { METHODS } from '../../../shared/transport/methods.js';
import { GrpcTransport } from '../../../shared/transport/grpc-transport.js';
import type { NodeIdentity } from '../../../shared/wire/messages.js';
import { TestCluster } from '../../unit/cluster-authority.js';
import { CALLERS, errorOf, everyMethod, NETWORK } from '../../unit/method-callers.js';
import { plainIdentity } from '../../unit/plain-identity.js';
import { callOver, dialAny, showing } from '../../unit/trusted-servers.js';
import { RUNTIME } from '../../wall.js';
import { CALL_TIMEOUT_MS, CLUSTER, type ProofCluster } from './proof-cluster.js';
import { errorWords, type Row, type Seen, wordsOf } from './row.js';

/** Another authority with the same name of a cluster. */
const STRANGERS = new TestCluster(CLUSTER);

/** The machine of each role whose certificate the rows show. */
const MEMBERS = { main: 'box', shadow: 'helper', worker: 'jetson', operator: 'laptop' } as const;

export const IDENTITY_ROWS: readonly Row[] = [
  {
    done: 'somebody without a certificate',
    act: async ({ main }) => refusalAt(main, {}),
    here: /^16: .*certificate.*join/,
    there: { of: 'box', say: /refused a connection .*certificate/ },
    status: null,
  },
  {
    done: 'a member of another authority with the same name of the cluster, which takes no main of this one',
    act: ({ main }) => {
      const client = new GrpcTransport(RUNTIME, null, STRANGERS.member('worker', 'stranger'));
      return wordsOf(identifyPeer(client, main, CALL_TIMEOUT_MS));
    },
    here: /certificate/,
    there: { of: 'box', say: /a connection ended in its TLS handshake|refused a connection/ },
    status: null,
  },
  {
    done: 'a hostile one of that other authority, which takes any main',
    act: ({ main }) => refusalAt(main, showing(STRANGERS.certify('worker', 'stranger'))),
    here: /^16: .*not of the authority of "home"/,
    there: { of: 'box', say: /refused a connection .*not of the authority of/ },
    status: null,
  },
  {
    done: 'a hostile one of that other authority at a worker',
    act: (cluster) => refusalAt(cluster.daemon('jetson').address, showing(STRANGERS.certify('main', 'box'))),
    here: /^16: .*not of the authority of "home"/,
    there: { of: 'jetson', say: /refused a connection .*not of the authority of/ },
    status: null,
  },
  ...(['id', 'role', 'cluster'] as const).map(differing),
  {
    done: 'a worker that is started as a shadow',
    act: (cluster) => cluster.runDaemon('copy', 'shadow', ['--id', 'jetson', '--main', cluster.main]).ended,
    here: /jetson has joined "home" as worker, and is started as shadow of "home": .*\[CONFIG_INVALID\]/,
    there: null,
    status: 2,
  },
  ...everyMethod().flatMap(([name, { servedBy }]) => wrongRole(name, servedBy)),
  {
    done: 'a shadow that is removed while its stream to a worker stands',
    act: removedWhileConnected,
    here: /^TRUST_REFUSED: node attic was removed from "home" .*odmoe shadow --rejoin; nothing more came$/,
    there: { of: 'jetson', say: /took a newer roster of the cluster/ },
    status: null,
  },
  {
    done: 'a removed machine that asks main again',
    act: async (cluster) => wordsOf(identifyPeer(await cluster.clientOf('attic'), cluster.main, CALL_TIMEOUT_MS)),
    here: /^TRUST_REFUSED: node attic was removed from "home"/,
    there: { of: 'box', say: /refused a connection .*node attic was removed/ },
    status: null,
  },
  {
    done: 'a worker daemon that is removed while it serves',
    act: async (cluster) => {
      const environment = { ODMOE_JOIN_TOKEN: await cluster.token() };
      const worker = cluster.runDaemon('nano', 'worker', ['--main', cluster.main], environment);
      await cluster.untilConnected('nano');
      const removed = await cluster.command('box', 'node', 'remove', 'nano', '--cluster', CLUSTER);
      if (removed.status !== 0) return removed;
      return worker.ended;
    },
    here: /node nano was removed from "home" .*To come back: odmoe worker --rejoin \[NODE_REMOVED\]/,
    there: { of: 'box', say: /an operator removed a node .*nano/ },
    status: 4,
  },
  {
    done: 'its next start',
    act: (cluster) => cluster.runDaemon('nano', 'worker', ['--main', cluster.main]).ended,
    here: /node nano was removed from "home" .*To come back: odmoe worker --rejoin \[NODE_REMOVED\]/,
    there: null,
    status: 4,
  },
];

/** Status and words for a client that takes any server. `certificate`: options of node:tls. */
async function refusalAt(address: string, certificate: object): Promise<Seen> {
  const { code, message } = await callOver(await dialAny(address, certificate), METHODS.node.identify.path);
  return { said: `${code}: ${message}`, status: null };
}

function differing(field: 'id' | 'role' | 'cluster'): Row {
  const stated: Partial<NodeIdentity> = { id: 'jetson', cluster: CLUSTER };
  const wrong = { id: { id: 'other' }, role: { role: 'ROLE_SHADOW' }, cluster: { cluster: 'work' } } as const;
  return {
    done: `a machine that states another ${field} than its certificate's`,
    act: async (cluster) => {
      const identity = plainIdentity({ ...stated, ...wrong[field] });
      const reply = await joinMain(await cluster.clientOf('jetson'), cluster.main, identity, CALL_TIMEOUT_MS);
      const said = reply.kind === 'welcome' ? 'welcome' : `${reply.refusal.code}: ${reply.refusal.message}`;
      return { said, status: null };
    },
    here: new RegExp(`^NOT_ALLOWED: .*states the ${field} `),
    there: { of: 'box', say: new RegExp(`states the ${field} `) },
    status: null,
  };
}

/** A call of the method as each role that may not call it, at the daemon that serves it. */
function wrongRole(name: string, servedBy: string): Row[] {
  const servers = servedBy === 'worker' ? ['jetson'] : servedBy === 'shadow' ? ['helper'] : ['box'];
  if (servedBy === 'any node') servers.push('jetson');
  const allowed = CALLERS[name] ?? [];
  const strangers = Object.entries(MEMBERS).filter(([role]) => !allowed.some((each) => each === role));
  return servers.flatMap((server) =>
    strangers.map(([role, member]): Row => ({
      done: `${name} of ${server}, asked by ${role} ${member}`,
      act: async (cluster) => {
        const method = everyMethod().find(([each]) => each === name)?.[1];
        if (method === undefined) throw new Error(`no method ${name}`);
        const error = await errorOf(await cluster.clientOf(member), cluster.daemon(server).address, name, method);
        return { said: error === null ? 'none' : errorWords(error), status: null };
      },
      here: new RegExp(
        `^NOT_ALLOWED: ${role} "${member}" may not call /odmoe.v1.\\S+: its certificate must be of role`,
      ),
      // A log has at most 30 lines of one event and peer at once: main's are those of other methods.
      there:
        server === 'box' && name.startsWith('pack.')
          ? null
          : { of: server as 'box', say: new RegExp(`${role} \\\\?"${member}\\\\?" may not call`) },
      status: null,
    })),
  );
}

async function removedWhileConnected(cluster: ProofCluster): Promise<Seen> {
  await cluster.joinByHand('shadow', 'attic');
  const client = await cluster.clientOf('attic');
  const { address } = cluster.daemon('jetson');
  const stream = openWorkerStream(client, address, NETWORK);
  let messages = 0;
  stream.onMessage(() => (messages += 1));
  const closed = new Promise<string>((resolve) => {
    stream.onClose((error) => resolve(error === null ? 'none' : errorWords(error)));
  });
  await identifyPeer(client, address, CALL_TIMEOUT_MS);
  const begunMs = RUNTIME.nowMs();
  await cluster.asOperator(METHODS.operator.removeNode, { id: 'attic' });
  const words = await closed;
  process.stdout.write(`      a removal at main ended the stream at a worker after ${RUNTIME.nowMs() - begunMs} ms\n`);
  const atClose = messages;
  await RUNTIME.sleep(QUIET_MS);
  return { said: `${words}; ${messages === atClose ? 'nothing more came' : 'more came'}`, status: null };
}

/** Time in which a message after the end would come. */
const QUIET_MS = 300;
