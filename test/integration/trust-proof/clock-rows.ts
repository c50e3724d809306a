/** Clocks that are wrong, of machines and of main, and a roster of yesterday. */
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { joinByToken } from '../../../engine/trust/enrol.js';
import { METHODS } from '../../../shared/transport/methods.js';
import { identifyPeer } from '../../../shared/transport/node-clients.js';
import { pemOf } from '../../../shared/transport/trust/tls-options.js';
import { machineOf } from '../../unit/enrolment-main.js';
import { RUNTIME } from '../../wall.js';
import { CALL_TIMEOUT_MS, type ProofCluster } from './proof-cluster.js';
import { type Row, type Seen, wordsOf } from './row.js';
import { openssl } from './socket-rows.js';

const DAY_MS = 86_400_000;

export const CLOCK_ROWS: readonly Row[] = [
  workerAt(1970),
  workerAt(2100),
  ...[0, Date.UTC(2100, 0, 1) / 1000].map(certificateAt),
  {
    done: 'main is started again with its clock set back by a day: a token of before lets its machine in',
    act: async (cluster) => {
      const [good, old] = [await cluster.token(), await cluster.token({ lifeMs: 1000 })];
      await RUNTIME.sleep(1100);
      await cluster.restart('main', 'box', () => undefined, cluster.clockShiftedBy(-DAY_MS));
      await joinByToken(cluster.main, good, machineOf('late'), { runtime: RUNTIME });
      return wordsOf(joinByToken(cluster.main, old, machineOf('later'), { runtime: RUNTIME }));
    },
    here: /^JOIN_TOKEN_INVALID: the join token \S+ expired .* ago, by main's clock/,
    there: {
      of: 'box',
      say: /the clock of this host was set back: join tokens are judged by the time since its start/,
    },
    status: null,
  },
  {
    done: 'main is started again with the roster of before a removal: a worker keeps the newer one',
    act: rosterOfYesterday,
    here: /^TRUST_REFUSED: node loft was removed from "home"/,
    there: { of: 'jetson', say: /a roster of main is not taken .*an old one/ },
    status: null,
  },
  {
    done: "main is started again with the roster of before a removal among the authority's files alone",
    act: authorityOfYesterday,
    here: /^TRUST_REFUSED: node barn was removed from "home"/,
    there: {
      of: 'box',
      say: /the roster among the files of the authority is an old one: main goes on with the newer one/,
    },
    status: null,
  },
];

function workerAt(year: number): Row {
  const id = `worker-${year}`;
  return {
    done: `a worker whose clock shows ${year}, by a token`,
    act: async (cluster) => {
      const shiftMs = Date.UTC(year, 0, 1) - Date.now();
      const environment = { ODMOE_JOIN_TOKEN: await cluster.token(), ...cluster.clockShiftedBy(shiftMs) };
      const worker = cluster.runDaemon(id, 'worker', ['--main', cluster.main], environment);
      await cluster.untilConnected(id);
      worker.stop();
      return worker.ended;
    },
    here: new RegExp(`^odmoe worker: joined "home" as ${id} [^]*\\n${year}-01-01T`),
    there: { of: 'box', say: new RegExp(`a machine has joined by a token id=${id}`) },
    status: 0,
  };
}

function certificateAt(seconds: number): Row {
  return {
    done: `openssl verify, at the second ${seconds} after 1970`,
    act: async (cluster) => {
      const { certificate, authority } = await cluster.credentials('jetson');
      const ca = cluster.fileWith('authority.pem', pemOf('CERTIFICATE', authority));
      const own = cluster.fileWith('own.pem', pemOf('CERTIFICATE', certificate));
      return openssl(['verify', '-attime', String(seconds), '-CAfile', ca, own]);
    },
    here: /: OK\n$/,
    there: null,
    status: 0,
  };
}

/** The rosters of main's disk: that of the authority, and main's own copy. */
function rostersOfMain(cluster: ProofCluster): { authority: string; own: string } {
  const state = cluster.stateOf('box');
  return { authority: join(state, 'authority', 'roster'), own: join(state, 'nodes', 'box', 'roster') };
}

async function rosterOfYesterday(cluster: ProofCluster): Promise<Seen> {
  const { authority, own } = rostersOfMain(cluster);
  const yesterday = cluster.fileWith('yesterday', '');
  await cluster.joinByHand('shadow', 'loft');
  copyFileSync(authority, yesterday);
  const from = cluster.countOf('jetson');
  await cluster.asOperator(METHODS.operator.removeNode, { id: 'loft' });
  await cluster.waitForWords('jetson', /took a newer roster of the cluster/, from);
  await cluster.restart('main', 'box', () => {
    copyFileSync(yesterday, authority);
    copyFileSync(yesterday, own);
  });
  await cluster.untilConnected('jetson');
  return wordsOf(identifyPeer(await cluster.clientOf('loft'), cluster.daemon('jetson').address, CALL_TIMEOUT_MS));
}

async function authorityOfYesterday(cluster: ProofCluster): Promise<Seen> {
  const { authority } = rostersOfMain(cluster);
  const yesterday = cluster.fileWith('yesterday', '');
  await cluster.joinByHand('shadow', 'barn');
  copyFileSync(authority, yesterday);
  await cluster.asOperator(METHODS.operator.removeNode, { id: 'barn' });
  await cluster.restart('main', 'box', () => copyFileSync(yesterday, authority));
  return wordsOf(identifyPeer(await cluster.clientOf('barn'), cluster.main, CALL_TIMEOUT_MS));
}
