/** The places of each layer's experts in each compared system. Pure; the decisions are those of shared/decisions/residency. */
import {
  type LayerResidency,
  RESIDENCY_STATES,
  residentBytes,
} from '../../shared/decisions/residency/residency-planner.js';
import { type Backend, placeTensors, placeWholeLayers } from '../../shared/decisions/residency/storage-hierarchy.js';
import { WINDOW_TENSORS, type WindowTensor } from './streaming-window.js';
import { GATE_UP_SHARE, type ServerWork } from './server-work.js';

/**
 * resident: all plain in device memory (vLLM). offload: the last layers in host memory, the others plain (vLLM-O). layers: the last layers in host
 * memory, the others compressed (FluxMoE-H). compressed: all compressed. divided: each layer divided by bandwidth, within what fits (FluxMoE).
 */
export const SYSTEMS = ['resident', 'offload', 'layers', 'compressed', 'divided'] as const;
export type ServingSystem = (typeof SYSTEMS)[number];

/** The loads of one layer at each pass: plain bytes by tensor type and backend. */
export type LayerLoads = Readonly<Record<WindowTensor, { compressed: number; host: number }>>;

export interface ExpertLayout {
  layers: LayerLoads[];
  /** Device bytes of experts, including the window if there is one. */
  deviceBytes: number;
}

/** The layout of a system. @throws DEVICE_OUT_OF_MEMORY when a layer does not fit */
export function layoutOf(system: ServingSystem, work: ServerWork): ExpertLayout {
  const { offloadedShare } = work.model;
  switch (system) {
    case 'resident':
      return layoutOfLayers(work, uniform(work, { plain: work.experts, compressed: 0, offloaded: 0 }), false);
    case 'offload':
      return layoutOfLayers(work, byLayers(work, offloadedShare, 'plain'), true);
    case 'layers':
      return layoutOfLayers(work, byLayers(work, offloadedShare, 'compressed'), true);
    case 'compressed':
      return layoutOfLayers(work, uniform(work, { plain: 0, compressed: work.experts, offloaded: 0 }), true);
    case 'divided':
      return divided(work);
  }
}

/** The layout that follows from a residency plan. */
export function layoutOfLayers(work: ServerWork, layers: readonly LayerResidency[], hasWindow: boolean): ExpertLayout {
  const bytes = { plain: work.expertBytes, compressed: work.expertBytes * work.costs.compressedShare };
  const expertBytes = residentBytes(layers, { bytes, loadMs: { compressed: 0, offloaded: 0 } });
  return {
    layers: layers.map((layer) => ({
      gateUp: loadsOf(layer, work.expertBytes * GATE_UP_SHARE),
      down: loadsOf(layer, work.expertBytes * (1 - GATE_UP_SHARE)),
    })),
    deviceBytes: expertBytes + (hasWindow ? work.windowBytes : 0),
  };
}

/** Gives every layer the same residency. */
export function uniform(work: ServerWork, layer: LayerResidency): LayerResidency[] {
  return Array.from({ length: work.layers }, () => layer);
}

function loadsOf({ compressed, offloaded }: LayerResidency, tensorBytes: number): LayerLoads[WindowTensor] {
  return { compressed: compressed * tensorBytes, host: offloaded * tensorBytes };
}

function byLayers(work: ServerWork, offloadedShare: number, form: 'plain' | 'compressed'): LayerResidency[] {
  const states = [form, 'offloaded'] as const;
  return placeWholeLayers(work.layers, offloadedShare).map((place) => {
    const counts = Object.fromEntries(RESIDENCY_STATES.map((state) => [state, 0])) as Record<
      keyof LayerResidency,
      number
    >;
    counts[states[place] ?? form] = work.experts;
    return counts;
  });
}

/** Equation 8 in every layer, tensor by tensor. Compressed memory is limited to what the compared systems have there. */
function divided(work: ServerWork): ExpertLayout {
  const capacityBytes = work.layerExpertBytes * (1 - work.model.offloadedShare);
  const backends: Backend[] = [
    { kind: 'compressed', bytesPerS: work.rate('decompressBytesPerS'), capacityBytes },
    { kind: 'host', bytesPerS: work.rate('expertLinkBytesPerS'), capacityBytes: Infinity },
  ];
  const sizes = { gateUp: work.expertBytes * GATE_UP_SHARE, down: work.expertBytes * (1 - GATE_UP_SHARE) };
  const tensors = WINDOW_TENSORS.flatMap((type) =>
    Array.from({ length: work.experts }, () => ({ type, bytes: sizes[type] })),
  );
  const places = placeTensors(
    tensors.map(({ bytes }) => bytes),
    backends,
  );
  const loads: Record<WindowTensor, { compressed: number; host: number }> = {
    gateUp: { compressed: 0, host: 0 },
    down: { compressed: 0, host: 0 },
  };
  for (const [index, { type, bytes }] of tensors.entries()) {
    loads[type][places[index] === 0 ? 'compressed' : 'host'] += bytes;
  }
  const compressedBytes = (loads.gateUp.compressed + loads.down.compressed) * work.costs.compressedShare;
  return {
    layers: Array.from({ length: work.layers }, () => loads),
    deviceBytes: work.layers * compressedBytes + work.windowBytes,
  };
}
