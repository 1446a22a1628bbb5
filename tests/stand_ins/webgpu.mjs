// WebGPU for tests under node: memory, copies and the rules about usage that a browser keeps. What a dispatch computes is up to the test: `device.kernels`
// has a function of [binding -> bytes, workgroups] for each pipeline, in the order in which they were made.

const need = (holds, text) => {
  if (!holds) throw new Error(`WebGPU: ${text}`);
};

class Buffer {
  constructor({size, usage}) {
    need(size > 0 && size % 4 === 0, `a buffer of ${size} bytes`);
    Object.assign(this, {size, usage, bytes: new Uint8Array(size), mapped: false, destroyed: false});
  }

  async mapAsync(mode) {
    need(mode === 1 && this.usage & 1 && !this.mapped && !this.destroyed, "this cannot be mapped");
    await null;
    this.mapped = true;
  }

  getMappedRange() {
    need(this.mapped, "not mapped");
    return this.bytes.buffer;
  }

  unmap() {
    this.mapped = false;
  }

  destroy() {
    this.destroyed = true;
  }
}

export class Device {
  constructor(limits = {}) {
    this.limits = {
      maxBufferSize: 2 ** 28, maxStorageBufferBindingSize: 2 ** 27, maxStorageBuffersPerShaderStage: 8, maxComputeWorkgroupStorageSize: 16384,
      maxComputeInvocationsPerWorkgroup: 256, maxComputeWorkgroupSizeX: 256, maxComputeWorkgroupSizeY: 256, maxComputeWorkgroupSizeZ: 64,
      maxComputeWorkgroupsPerDimension: 65535, ...limits,
    };
    this.kernels = [];
    this.dispatched = [];
    this.buffers = [];
    this.pipelines = 0;
    this.queue = {
      writeBuffer: (buffer, offset, data) => {
        need(buffer.usage & 8 && !buffer.destroyed && !buffer.mapped, "a write to this buffer");
        need(offset % 4 === 0 && data.byteLength % 4 === 0 && offset + data.byteLength <= buffer.size, `a write of ${data.byteLength} bytes at ${offset}`);
        buffer.bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
      },
      submit: (lists) => lists.flat().forEach((command) => command()),
    };
  }

  createBuffer(row) {
    const made = new Buffer(row);
    this.buffers.push(made);
    return made;
  }

  createShaderModule({code}) {
    return {code};
  }

  createBindGroupLayout({entries}) {
    need(entries.every(({binding}, k) => binding === k), "bindings in order");
    return {kinds: entries.map(({buffer}) => buffer.type)};
  }

  createPipelineLayout({bindGroupLayouts}) {
    return bindGroupLayouts[0];
  }

  async createComputePipelineAsync({layout, compute}) {
    need(compute.module.code.includes(`fn ${compute.entryPoint}(`), "the entry point");
    return {layout, number: this.pipelines++};
  }

  createBindGroup({layout, entries}) {
    need(entries.length === layout.kinds.length, `${entries.length} bindings where ${layout.kinds.length} are`);
    const held = entries.map(({resource: {buffer, offset = 0, size = buffer.size}}, k) => {
      need(offset + size <= buffer.size && size % 4 === 0, `binding ${k} of ${size} bytes`);
      need(buffer.usage & (layout.kinds[k] === "uniform" ? 64 : 128), `the usage of binding ${k}`);
      return {buffer, writes: layout.kinds[k] === "storage", bytes: buffer.bytes.subarray(offset, offset + size)};
    });
    for (const one of held) need(!held.some((other) => other !== one && other.buffer === one.buffer && (one.writes || other.writes)), "one buffer twice, and written");
    return {layout, held};
  }

  createCommandEncoder() {
    const commands = [];
    return {
      copyBufferToBuffer: (source, at, target, to, size) => {
        need(source.usage & 4 && target.usage & 8 && [at, to, size].every((n) => n % 4 === 0), "this copy");
        commands.push(() => target.bytes.set(source.bytes.subarray(at, at + size), to));
      },
      beginComputePass: () => {
        let pipeline, group;
        return {
          setPipeline: (made) => (pipeline = made),
          setBindGroup: (number, made) => {
            need(number === 0 && made.layout === pipeline.layout, "the bind group's layout");
            group = made;
          },
          dispatchWorkgroups: (...groups) => {
            need(groups.every((n) => n <= this.limits.maxComputeWorkgroupsPerDimension), `a dispatch of ${groups}`);
            const [{number}, {held}] = [pipeline, group];
            commands.push(() => {
              need(held.every(({buffer}) => !buffer.destroyed), "a destroyed buffer is submitted");
              this.dispatched.push(groups);
              this.kernels[number]?.(held.map(({bytes}) => bytes), groups);
            });
          },
          end: () => {},
        };
      },
      finish: () => commands,
    };
  }
}
