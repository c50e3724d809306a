import { operatorMs } from '../../engine/emulation/device-profile.js';
import { expertRowSize } from '../../shared/model/model-shape.js';
import { denseMs, type ClusterTimes } from '../simulate/cluster-set-up.js';

/** OD-MoE equation 1 for a cluster: the longest load time for which main does not wait, and the real load time. */
export interface LoadTiming {
  groups: number;
  /** t^M: main's time between two expert layers (the mean), and the transfer of its hidden state to the group. */
  mainMs: number;
  /** t^W: time of an expert, and the transfer of the outputs back. */
  workerMs: number;
  /** t^maxload = groups * t^M + (groups - 1) * t^W. */
  maxLoadMs: number;
  /** Load time of the slowest worker. */
  loadMs: number;
  ioBound: boolean;
}

/** Assumes one position per pass, one expert per worker and layer, and right predictions in time. */
export function loadTiming(times: ClusterTimes, groups: number, expertsPerToken: number): LoadTiming {
  const { network, model } = times;
  const messageBytes = expertRowSize(model.shape) * Float32Array.BYTES_PER_ELEMENT + network.messageOverheadBytes;
  const wayMs = network.roundTripMs / 2 + (expertsPerToken * messageBytes * 1000) / network.bytesPerS;
  const devices = times.workers ?? [times.worker];
  const { expertLayers } = model.shape;
  const mainMs = denseMs(times.main, expertLayers, Int32Array.of(0)) / expertLayers + wayMs;
  const workerMs = Math.max(...devices.map((device) => operatorMs(device.expert, 1))) + wayMs;
  const loadMs = Math.max(...devices.map((device) => device.loadMs));
  const maxLoadMs = groups * mainMs + (groups - 1) * workerMs;
  return { groups, mainMs, workerMs, maxLoadMs, loadMs, ioBound: loadMs > maxLoadMs };
}
