/** Announcements that anybody in the network may make. */
import { createSocket, type Socket } from 'node:dgram';
import { setTimeout as pause } from 'node:timers/promises';
import { encodeTxt } from '../../shared/transport/discovery/txt-record.js';
import { MAX_TOLD_PROBLEMS } from '../../main-node/cluster/told-problems.js';
import type { CaseAnswer, LimitsCase } from './limits-case.js';
import type { LimitsCluster } from './limits-cluster.js';
import { announcementPacket } from './mdns-packet.js';

const GROUP = '224.0.0.251';
const PORT = 5353;
const LOOPBACK = '127.0.0.1';
const ANNOUNCEMENTS = 20_000;
const AT_ONCE = 20;
const HEARD_WITHIN_MS = 3000;

/** So many workers of this cluster, each of another name, that belong to another model or do not exist at all. */
async function flood(cluster: LimitsCluster): Promise<CaseAnswer> {
  const socket = createSocket({ type: 'udp4', reuseAddr: true });
  try {
    await new Promise<void>((resolve) => socket.bind(0, LOOPBACK, resolve));
    socket.setMulticastInterface(LOOPBACK);
    socket.setMulticastLoopback(true);
    const like = await cluster.identityLikeMain({ role: 'ROLE_WORKER', packDigest: 'f'.repeat(64) });
    for (let number = 0; number < ANNOUNCEMENTS; number += 1) {
      const identity = { ...like, id: `false-${number}`, bootId: `boot-${number}`, cluster: cluster.name };
      const packet = announcementPacket(identity.id, 1024 + (number % 64_000), LOOPBACK, encodeTxt(identity));
      await sent(socket, packet);
      if (number % AT_ONCE === 0) await pause(1);
    }
    await pause(HEARD_WITHIN_MS);
    const { problems } = await cluster.status();
    const isHeard = problems.length > 0;
    const text = isHeard ? `${problems.length} problems told` : 'not heard: no multicast on the loopback interface';
    return { text, expected: problems.length <= MAX_TOLD_PROBLEMS, messages: ANNOUNCEMENTS };
  } finally {
    socket.close();
  }
}

function sent(socket: Socket, packet: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.send(packet, PORT, GROUP, (error) => (error === null ? resolve() : reject(error)));
  });
}

export const DISCOVERY_CASES: readonly LimitsCase[] = [
  {
    name: 'mdns-flood',
    about: `${ANNOUNCEMENTS} workers of other names announced by mDNS over loopback`,
    target: 'main',
    mainFlags: ['--discovery', 'mdns', '--interface', LOOPBACK],
    run: (cluster) => flood(cluster),
  },
];
