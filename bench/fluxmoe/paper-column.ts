/** Numbers from FluxMoE's text, only for the column beside ours; nothing is computed from them. */
export const PAPER = {
  table1: { 'mixtral-8x7b': 94, 'qwen3-next-80b-a3b': 160, 'mistral-7b': 14, 'qwen2.5-14b': 29.4 },
  figure2: { moreCache: 1.588, longContextSmallCache: 0.333 },
  figure5: { storedShare: 0.8 },
  figure7: {
    compressedOfResidentAt32: 0.639,
    residentOfOffloadAt32: 6,
    offloadTokensPerSAt32: 54.6,
    residentFrom128To256: 0.678,
    compressedOfResidentAt256: 3,
    compressedOfOffloadAt256: 3.7,
    residentOfOffloadAt256: 1.221,
    residentFrom1024To4096: 0.547,
    compressedFrom1024To4096: 0.795,
  },
  figure8: { dividedOfLayersAt1024: 1.285, dividedOfLayersAt4096: 1.229, offloadTokensPerS: 3.7 },
  figure9: { steps: 7, reclaimedGb: 5.3, leastOfFixed: 1 },
  figure10: { leastOfResident: 0.97 },
} as const;
