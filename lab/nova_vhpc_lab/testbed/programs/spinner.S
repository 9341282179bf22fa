/* A guest that starts at once and never sleeps: every vCPU runs a loop.
 * Multiboot (version 1), for QEMU's -kernel. */
    .set MULTIBOOT_MAGIC, 0x1badb002
    .set APIC_ICR_LOW, 0xfee00300
    .set INIT_ALL_OTHERS, 0x000c4500
    .set SIPI_ALL_OTHERS, 0x000c4608    /* starts them at 0x8000 */
    .set LOOP_16BIT, 0xfeeb             /* jmp . */

    .section .text
    .code32
    .align 4
    .long MULTIBOOT_MAGIC, 0, -MULTIBOOT_MAGIC
    .globl _start
_start:
    cli
    movw $LOOP_16BIT, 0x8000
    movl $INIT_ALL_OTHERS, APIC_ICR_LOW
    call pause
    movl $SIPI_ALL_OTHERS, APIC_ICR_LOW
    call pause
    movl $SIPI_ALL_OTHERS, APIC_ICR_LOW
    jmp .
pause:
    movl $0x200000, %ecx
1:  loop 1b
    ret
