import type { NodeIdentity, Refusal } from '../wire/messages.js';
import { protocolsOf, spokenProtocol } from '../wire/versions.js';

/**
 * Checks that two daemons may work together. Returns null if they may, else the reason, with both sides' values and the remedy. An empty model
 * name or digest (a daemon that has not opened its model, a checkpoint without a digest) matches only an empty one.
 */
export function checkPeer(own: NodeIdentity, peer: NodeIdentity): Refusal | null {
  const difference = firstDifference(own, peer);
  if (difference === null) return null;
  const { what, ownValue, peerValue, advice } = difference;
  return {
    code: 'NODE_REFUSED',
    message:
      `${describe(peer)} and ${describe(own)} cannot work together: ${what} is ${shown(peerValue)} there ` +
      `and ${shown(ownValue)} here; ${advice}`,
  };
}

interface Difference {
  what: string;
  ownValue: string;
  peerValue: string;
  advice: string;
}

function firstDifference(own: NodeIdentity, peer: NodeIdentity): Difference | null {
  if (spokenProtocol(own, peer) === null) return noCommonProtocol(own, peer);
  const comparisons: Difference[] = [
    {
      what: 'the cluster name',
      ownValue: own.cluster,
      peerValue: peer.cluster,
      advice: 'give both the same `cluster:` in cluster.yaml (or --cluster), or keep them apart',
    },
    {
      what: 'the model',
      ownValue: own.modelName,
      peerValue: peer.modelName,
      advice: "start both with a copy of the same pack (--model); a worker without --model fetches main's",
    },
    {
      what: 'the pack digest',
      ownValue: own.packDigest,
      peerValue: peer.packDigest,
      advice:
        'the packs were made differently: copy one pack to both, or pack again with the same options; ' +
        "a worker without --model fetches main's when it is restarted",
    },
  ];
  if (computesExperts(own) && computesExperts(peer)) comparisons.push(...qualityComparisons(own, peer));
  return comparisons.find(({ ownValue, peerValue }) => ownValue !== peerValue) ?? null;
}

function noCommonProtocol(own: NodeIdentity, peer: NodeIdentity): Difference {
  return {
    what: 'the protocol version',
    ownValue: protocolsOf(own),
    peerValue: protocolsOf(peer),
    advice: `they are of odmoe ${shown(peer.release)} there and ${shown(own.release)} here: update the older one`,
  };
}

/** Main says how experts are computed, and workers compute them. Shadow only predicts. */
function computesExperts({ role }: NodeIdentity): boolean {
  return role !== 'ROLE_SHADOW';
}

/** The quality of a node, as people write it. */
function qualityOf({ quality = '' }: NodeIdentity): string {
  return quality === '' ? 'exact' : quality;
}

function qualityComparisons(own: NodeIdentity, peer: NodeIdentity): Difference[] {
  return [
    {
      what: 'the quality',
      ownValue: qualityOf(own),
      peerValue: qualityOf(peer),
      advice: 'give both the same `main.quality` in cluster.yaml (or --quality)',
    },
    {
      what: 'the digest of the slices',
      ownValue: own.slicesDigest ?? '',
      peerValue: peer.slicesDigest ?? '',
      advice:
        'the slices were made differently: copy those of one pack to both, or make them again with the same odmoe',
    },
  ];
}

function describe(identity: NodeIdentity): string {
  const role = identity.role.replace('ROLE_', '').toLowerCase();
  return `${role} ${shown(identity.id)}`;
}

function shown(value: string): string {
  return value === '' ? '(none)' : JSON.stringify(value);
}
